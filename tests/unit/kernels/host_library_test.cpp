// Tests of kernels run twice: with the kernels that the loader takes for the CPU at hand, and with
// those for CPUs without AVX-512 (CMakeLists.txt).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/host_kernels.h"
#include "support/environment.h"

namespace muo {
namespace {

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

}  // namespace
}  // namespace muo
