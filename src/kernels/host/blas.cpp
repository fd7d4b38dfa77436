#include "kernels/blas.h"

#include <cblas.h>

#include <cstdlib>
#include <string_view>

#include "base/check.h"

// Exported by builds with kernels for several CPUs, absent from others.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_init();
__attribute__((weak)) void gotoblas_dynamic_quit();
__attribute__((weak)) int blas_thread_shutdown_();  // NOLINT(readability-identifier-naming)
}

namespace muo {
namespace {

// OpenBLAS 0.3.21 takes CPUs that are younger than itself (Emerald Rapids, for one) for a Prescott
// of 2004 and runs its SSE3 kernels: sgemm at a fifth of the speed. No Prescott has AVX2; then the
// kernels are chosen anew, by what this CPU can do.
// NOLINTBEGIN(concurrency-mt-unsafe): the environment; callers have no other threads yet.
void choose_kernels() {
  if (std::string_view(openblas_get_corename()) != "Prescott" ||
      __builtin_cpu_supports("avx2") == 0 || std::getenv("OPENBLAS_CORETYPE") != nullptr ||
      gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr ||
      blas_thread_shutdown_ == nullptr)
    return;
  // The library starts threads of its own when it is loaded, and on a busy machine one may only now
  // look for its kernels. With one thread per call nothing needs them again.
  blas_thread_shutdown_();
  const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  const char* core = __builtin_cpu_supports("avx512bf16") != 0 && avx512 ? "Cooperlake"
                     : avx512                                            ? "SkylakeX"
                                                                         : "Haswell";
  setenv("OPENBLAS_CORETYPE", core, 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv("OPENBLAS_CORETYPE");
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace

void require_safe_blas() {
  // openblas_get_parallel: 0 serial, 1 threads, 2 OpenMP.
  static const bool safe = [] {
    if (openblas_get_parallel() == 0)
      throw InputError(
          concat("BLAS: the loaded OpenBLAS is its serial flavour (", openblas_get_config(),
                 "), which returns wrong numbers when several devices multiply at once; install "
                 "libopenblas0-pthread and remove other OpenBLAS libraries from LD_LIBRARY_PATH"));
    openblas_set_num_threads(1);
    choose_kernels();
    return true;
  }();
  static_cast<void>(safe);
}

std::string describe_blas() {
  return concat(openblas_get_config(), ", kernels for ", openblas_get_corename());
}

}  // namespace muo
