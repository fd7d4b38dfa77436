// Tests of kernels run twice: with the host kernels of the build, and with those for the CPU at
// hand (CMakeLists.txt, muograph_native).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "kernels/activation.h"

namespace muo {
namespace {

TEST(HostLibrary, IsTheOneThatIsAskedFor) {
  Dl_info library;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&relu_squared), &library), 0);
  const char* path = std::getenv("LD_LIBRARY_PATH");  // NOLINT(concurrency-mt-unsafe)
  const bool native = path != nullptr && std::string_view(path).ends_with("/native");
  EXPECT_EQ(std::string_view(library.dli_fname).find("/native/") != std::string_view::npos, native)
      << library.dli_fname;
}

}  // namespace
}  // namespace muo
