#include "kernels/blas.h"

#include <cblas.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"

// OpenBLAS's own start-up (driver/others/dynamic.c); exported, but in no header. Weak: a build of
// OpenBLAS for one CPU lacks them and has no choice to make.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_init(void);
[[gnu::weak]] void gotoblas_dynamic_quit(void);
}

namespace muo {
namespace {

void refuse_serial_flavour() {
  if (openblas_get_parallel() != 0) return;  // 0 serial, 1 threads, 2 OpenMP
  throw InputError(
      concat("BLAS: the loaded OpenBLAS is its serial flavour (", openblas_get_config(),
             "), which returns wrong numbers when several devices multiply at once; install "
             "libopenblas0-pthread and remove other OpenBLAS libraries from LD_LIBRARY_PATH"));
}

// OpenBLAS knows CPUs by model number: 0.3.21 takes an Emerald Rapids (2023) for a Prescott
// (2004). With OPENBLAS_CORETYPE it checks what the CPU can do.
void choose_core() {
  constexpr std::array<std::string_view, 6> kWithAvx2 = {
      "Haswell", "Zen", "Excavator", "SkylakeX", "Cooperlake", "SapphireRapids"};
  const char* core = openblas_get_corename();
  const bool known = std::find(kWithAvx2.begin(), kWithAvx2.end(), core) != kWithAvx2.end();
  if (known || getenv("OPENBLAS_CORETYPE") != nullptr || gotoblas_dynamic_init == nullptr ||
      gotoblas_dynamic_quit == nullptr || __builtin_cpu_supports("avx2") == 0)
    return;
  const bool wide =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  const bool bf16 = wide && __builtin_cpu_supports("avx512bf16") != 0;
  setenv("OPENBLAS_CORETYPE", bf16 ? "Cooperlake" : wide ? "SkylakeX" : "Haswell", 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv("OPENBLAS_CORETYPE");
}

}  // namespace

void require_safe_blas() {
  static const bool kDone = [] {
    refuse_serial_flavour();
    choose_core();
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(kDone);
}

std::string_view blas_core() {
  require_safe_blas();
  return openblas_get_corename();
}

}  // namespace muo
