#include <unistd.h>

#include <cstddef>
#include <string_view>

#include "cli/cli.h"
#include "cli/version.h"

#ifdef __x86_64__
namespace {

// All other code, including the initialization of libraries, is compiled for these instructions, so
// this check runs before it and before a sanitizer's initialization.
[[gnu::no_sanitize("address,thread,undefined")]] void check_cpu(int /*argc*/, char** /*argv*/,
                                                                char** /*environment*/) {
  __builtin_cpu_init();
#  ifdef MUO_AVX512_ONLY
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return;
  constexpr std::string_view kWhy =
      "muograph: this CPU has no AVX-512, for which scripts/train.sh built muograph on another "
      "machine: run scripts/train.sh here\n";
#  else
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return;
  constexpr std::string_view kWhy =
      "muograph: this CPU has no AVX2 (x86-64-v3), which muograph requires; use a CPU from "
      "Intel since Haswell (2013) or AMD since Excavator (2015)\n";
#  endif
  static_cast<void>(!write(STDERR_FILENO, kWhy.data(), kWhy.size()));
  _exit(2);
}

using Initialiser = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] const Initialiser kFirst = &check_cpu;

}  // namespace
#endif

int main(int argc, char** argv) {
  return muo::cli::run_program({argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)},
                               muo::cli::kVersion);
}
