#include "base/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "base/check.h"
#include "support/errors.h"
#include "support/nested_arrays.h"

namespace muo {
namespace {

using testing::StartsWith;

TEST(StrictJson, RefusesWhatMayBeHostile) {
  const auto error = [](const std::string& text) {
    EXPECT_TRUE(try_strict_json(text).is_discarded()) << text.substr(0, 20);
    return test::message_of<InputError>([&] { parse_strict_json(text, "f"); });
  };
  EXPECT_EQ(error(test::nested_arrays(66)), "f: JSON nested deeper than 64 levels");
  EXPECT_EQ(error(test::nested_arrays(200'000)), "f: JSON nested deeper than 64 levels");
  EXPECT_EQ(error(R"({"a":1,"a":2})"), "f: the key \"a\" occurs twice");
  EXPECT_THAT(error(R"({"a":1)"), StartsWith("f: malformed JSON: "));
  EXPECT_THAT(error("1e999"), StartsWith("f: malformed JSON: "));
  EXPECT_THAT(error("\"\xFF\""), StartsWith("f: malformed JSON: "));
  EXPECT_THAT(error(""), StartsWith("f: malformed JSON: "));
}

TEST(StrictJson, ReadsAllElse) {
  for (const std::string& text :
       {test::nested_arrays(64), std::string(R"({"a":[1,2.5,"x",null]})")}) {
    EXPECT_EQ(parse_strict_json(text, "f").dump(), text);
    EXPECT_EQ(try_strict_json(text).dump(), text);
  }
}

}  // namespace
}  // namespace muo
