#include "runtime/cuda/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NcclLibrary, AVersionIsFormattedAsByNccl) {
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
  EXPECT_EQ(nccl::version_text(23007), "2.30.7");
}

TEST(NcclLibrary, AMissingLibraryIsNamedWithAdvice) {
  EXPECT_THAT(nccl::load("libnccl_of_nowhere.so.2").missing,
              AllOf(HasSubstr("NCCL does not load"), HasSubstr("libnccl_of_nowhere.so.2"),
                    HasSubstr("2.28.0 or newer"), HasSubstr("--comm peer")));
}

TEST(NcclLibrary, AnotherLibraryIsRefused) {
  EXPECT_THAT(nccl::load("libm.so.6").missing,
              AllOf(HasSubstr("libm.so.6"), HasSubstr("of an unknown version")));
}

// NVIDIA's own library: every function exists, and those that need no GPU work.
TEST(NcclLibrary, NvidiasHasAllFunctionsThatWeCall) {
  const nccl::Library library = nccl::load("libnccl.so.2");
  if (library.missing.find("does not load") != std::string::npos) GTEST_SKIP() << library.missing;
  ASSERT_EQ(library.missing, "");
  EXPECT_GE(library.version, nccl::kOldestVersion);
  EXPECT_THAT(library.functions.get_error_string(nccl::Result::kInvalidUsage),
              HasSubstr("invalid usage"));
  EXPECT_EQ(library.functions.group_start(), nccl::Result::kSuccess);
  EXPECT_EQ(library.functions.group_end(), nccl::Result::kSuccess);
}

}  // namespace
}  // namespace muo
