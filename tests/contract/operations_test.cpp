#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <typeindex>

#include "kernels/operation.h"
#include "runtime/plugin.h"

namespace muo {
namespace {

TEST(Operations, HaveNamesAndArgumentTypesOfTheirOwn) {
  std::set<std::string_view> names;
  std::set<std::type_index> arguments;
  for (const OperationBase* operation : OperationBase::all()) {
    EXPECT_TRUE(names.insert(operation->name()).second) << operation->name();
    EXPECT_TRUE(arguments.insert(operation->arguments()).second) << operation->name();
  }
  EXPECT_FALSE(names.empty());
}

TEST(Operations, HaveAHostKernelEach) {
  std::string lacking;
  for (const OperationBase* operation : OperationBase::all())
    if (!operation->has_host()) lacking += std::string(operation->name()) + " ";
  EXPECT_EQ(lacking, "");
}

// Loading the plug-in needs the CUDA libraries, but no GPU.
TEST(Operations, HaveACudaKernelEach) {
  const LoadedPlugin cuda = load_plugin("muograph_cuda");
  if (cuda.plugin == nullptr) GTEST_SKIP() << cuda.missing;
  std::string lacking;
  for (const OperationBase* operation : OperationBase::all())
    if (!operation->has_cuda()) lacking += std::string(operation->name()) + " ";
  EXPECT_EQ(lacking, "");
}

}  // namespace
}  // namespace muo
