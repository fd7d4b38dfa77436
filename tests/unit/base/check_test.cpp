#include "base/check.h"

#include <gtest/gtest.h>

#include <string>

#include "support/errors.h"

namespace muo {
namespace {

using test::message_of;

TEST(Check, MessageHasPlaceConditionAndValues) {
  const int rows = 3;
  const std::string message =
      message_of<Error>([&] { MUO_CHECK(rows == 4, "rows ", rows, " of ", 4); });
  EXPECT_NE(message.find("check_test.cpp:"), std::string::npos) << message;
  EXPECT_NE(message.find("rows == 4"), std::string::npos) << message;
  EXPECT_NE(message.find("rows 3 of 4"), std::string::npos) << message;
}

TEST(Check, FormatsNothingWhenTheConditionHolds) {
  int formatted = 0;
  const auto text = [&] { return ++formatted; };
  EXPECT_NO_THROW(MUO_CHECK(true, text()));
  EXPECT_EQ(formatted, 0);
  EXPECT_THROW(MUO_CHECK(false, text()), Error);
  EXPECT_EQ(formatted, 1);
}

TEST(Check, ErrorsAndInputErrorsAreDistinct) {
  EXPECT_THROW(MUO_FAIL("ours"), Error);
  EXPECT_FALSE((std::is_base_of_v<Error, InputError>));
  EXPECT_FALSE((std::is_base_of_v<InputError, Error>));
}

}  // namespace
}  // namespace muo
