#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <typeindex>

#include "kernels/operation.h"

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

}  // namespace
}  // namespace muo
