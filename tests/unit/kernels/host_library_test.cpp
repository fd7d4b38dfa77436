// Tests of kernels run twice: with the kernels that the loader chooses for this CPU, and with the
// kernels for CPUs without AVX-512 (CMakeLists.txt).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "kernels/activation.h"
#include "kernels/host/onednn.h"
#include "kernels/host_kernels.h"
#include "support/environment.h"

namespace muo {
namespace {

using host::MatrixBlock;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(HostLibrary, IsTheOneForThisCpu) {
  Dl_info library;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&relu_squared), &library), 0);
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const bool hidden = test::environment("GLIBC_TUNABLES").value_or("").ends_with("-AVX512F");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && !hidden) {
    EXPECT_THAT(library.dli_fname, HasSubstr("glibc-hwcaps/x86-64-v4/"));
    EXPECT_THAT(describe_host_kernels(), StartsWith("AVX-512"));
    return;
  }
#endif
  EXPECT_THAT(library.dli_fname, Not(HasSubstr("glibc-hwcaps")));
  EXPECT_THAT(describe_host_kernels(), Not(StartsWith("AVX-512")));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Runs in a separate process, in which oneDNN has not created kernels yet.
TEST(HostLibraryDeathTest, ReportsMissingMemoryForOneDnnsKernels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto multiply = [](std::int64_t bytes_left) {
    const std::array<float, 256> x{};
    std::array<float, 256> out{};
    std::ifstream sizes("/proc/self/statm");
    rlim_t pages = 0;
    sizes >> pages;
    const rlim_t bytes =
        pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + static_cast<rlim_t>(bytes_left);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      host::product({.m = 16,
                     .n = 16,
                     .k = 16,
                     .transpose_a = false,
                     .transpose_b = false,
                     .alpha = 1.0F,
                     .beta = 0.0F},
                    MatrixBlock<const float>{x.data(), 16}, MatrixBlock<const float>{x.data(), 16},
                    MatrixBlock<float>{out.data(), 16});
    } catch (const std::exception& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(multiply(8 << 20), testing::ExitedWithCode(3), "memory for oneDNN's kernels: 32 MiB");
}
#endif

}  // namespace
}  // namespace muo
