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

TEST(StrictJson, RejectsHostileText) {
  const auto error = [](const std::string& text) {
    EXPECT_TRUE(try_strict_json(text).is_discarded()) << text.substr(0, 20);
    return test::message_of<InputError>([&] { parse_strict_json(text, "f"); });
  };
  EXPECT_EQ(error(test::nested_arrays(66)), "f: JSON nested deeper than 64 levels");
  EXPECT_EQ(error(test::nested_arrays(200'000)), "f: JSON nested deeper than 64 levels");
  EXPECT_EQ(error(R"({"a":1,"a":2})"), "f: the key \"a\" occurs twice");
  EXPECT_THAT(error(R"({"a":1)"), StartsWith("f: malformed JSON: parse error at line 1"));
  EXPECT_THAT(error("1e999"), StartsWith("f: malformed JSON: "));
  EXPECT_THAT(error("\"\xFF\""), StartsWith("f: malformed JSON: "));
  EXPECT_THAT(error(""), StartsWith("f: malformed JSON: "));
  EXPECT_EQ(error("\xFF\xFE{\0"),
            "f: UTF-16, not UTF-8; convert it to UTF-8: iconv -f UTF-16 -t UTF-8");
}

TEST(StrictJson, AcceptsEverythingElse) {
  for (const std::string& text :
       {test::nested_arrays(64), std::string(R"({"a":[1,2.5,"x",null]})")}) {
    EXPECT_EQ(parse_strict_json(text, "f").dump(), text);
    EXPECT_EQ(try_strict_json(text).dump(), text);
  }
}

TEST(StrictJson, ReadsPythonsNonFiniteNumbersAsNull) {
  const std::string big = "1" + std::string(400, '0');
  EXPECT_EQ(
      parse_python_json(
          "[NaN,-Infinity,1e400,-1.5E+999," + big + R"(,1e-400,-0.5,true,"1e400 NaN\""])", "f")
          .dump(),
      R"([null,null,null,null,null,0.0,-0.5,true,"1e400 NaN\""])");
  for (const char* const text : {"[1e400", "[1e400-5]", "[1e400x]", "1e400e5"})
    EXPECT_THAT(test::message_of<InputError>([&] { parse_python_json(text, "f"); }),
                StartsWith("f: malformed JSON: "))
        << text;
}

}  // namespace
}  // namespace muo
