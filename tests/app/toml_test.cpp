#include "app/toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "support/errors.h"

namespace muo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> value_of(const std::string& text) {
  return parse_toml("key = " + text, "f").at(0).values;
}

std::string error_of(const std::string& text) {
  return test::message_of<InputError>([&] { parse_toml(text, "run.toml"); });
}

TEST(Toml, ReadsScalars) {
  EXPECT_THAT(value_of("12"), ElementsAre("12"));
  EXPECT_THAT(value_of("-1  # never"), ElementsAre("-1"));
  EXPECT_THAT(value_of("+1_000"), ElementsAre("1000"));
  EXPECT_THAT(value_of("6.5e-3"), ElementsAre("6.5e-3"));
  EXPECT_THAT(value_of("true"), ElementsAre("true"));
  EXPECT_THAT(value_of("\"a # b\""), ElementsAre("a # b"));
  EXPECT_THAT(value_of(R"('C:\text')"), ElementsAre(R"(C:\text)"));
  EXPECT_THAT(value_of(R"("tab\t quote\" \u00e9 \U0001F600")"),
              ElementsAre("tab\t quote\" \xC3\xA9 \xF0\x9F\x98\x80"));
}

TEST(Toml, ReadsArraysOverLines) {
  EXPECT_THAT(value_of("[]"), ElementsAre());
  EXPECT_THAT(value_of("[\n  'a', # one\n  'b',\n]"), ElementsAre("a", "b"));
}

TEST(Toml, KeepsOrderAndLines) {
  const auto entries = parse_toml("# top\r\na = 1\r\n\r\nb-c = [\r\n2]\r\nd_e = 3", "f");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[1].key, "b-c");
  EXPECT_EQ(entries[1].line, 4);
  EXPECT_EQ(entries[2].line, 6);
}

TEST(Toml, RefusesWhatIsMalformedWithFileAndLine) {
  EXPECT_EQ(error_of("a = 1\nb"), "run.toml:2: '=' is missing after 'b'");
  EXPECT_EQ(error_of("a = host"), "run.toml:1: the value of 'a' needs quotes: \"host\"");
  EXPECT_EQ(error_of("a = 1 2"), "run.toml:1: more than a value for 'a'");
  EXPECT_EQ(error_of("a = 1\n\na = 2"), "run.toml:3: 'a' stands in line 1 already");
  EXPECT_THAT(error_of("[model]\na = 1"), HasSubstr("run.toml:1: tables are not used"));
  EXPECT_THAT(error_of("a ="), HasSubstr("'a' has no value"));
  EXPECT_THAT(error_of("a = [1, 2"), HasSubstr("',' or ']' is missing"));
  EXPECT_THAT(error_of("a = [1,"), HasSubstr("does not end"));
  EXPECT_THAT(error_of("a = \"x"), HasSubstr("a string does not end"));
  EXPECT_THAT(error_of(R"(a = "\q")"), HasSubstr("no escape sequence"));
  EXPECT_THAT(error_of(R"(a = "\ud800")"), HasSubstr("no such character"));
}

TEST(Toml, QuotesEveryByteSoThatItReadsBack) {
  std::string all;
  for (int byte = 1; byte < 128; ++byte)
    all += static_cast<char>(byte);
  EXPECT_THAT(value_of(toml_string(all)), ElementsAre(all));
}

}  // namespace
}  // namespace muo
