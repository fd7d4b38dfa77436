#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "support/errors.h"
#include "trainer/options/config_file.h"

namespace muo::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

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
  EXPECT_THAT(value_of("0x10"), ElementsAre("16"));
  EXPECT_THAT(value_of("6.5e-3"), ElementsAre("0.0065"));
  EXPECT_THAT(value_of("4.0"), ElementsAre("4.0")) << "not an integer";
  EXPECT_THAT(value_of("0.1234567890123456789"), ElementsAre("0.12345678901234568"));
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

TEST(Toml, RejectsKeysThatCrashTheParser) {
  std::string deep = "a";
  for (int i = 0; i < 200'000; ++i)
    deep += ".a";
  for (const std::string& text :
       {"x = 1\n" + deep + " = 1", "\n[" + deep + "]", "x = 1\n\"a\"." + deep + " = 1",
        "\nx = {b = \"\"\"y\"\"\"\", " + deep + " = 1}", "x = '\"'\n" + deep + " = '\"'"})
    EXPECT_THAT(error_of(text), StartsWith("run.toml:2: dotted key"));
  EXPECT_THAT(value_of("[\"....../a\", '''....\n....''', 1.5, 2.5, 3.5, 4.5, 5.5] # ...... ="),
              ElementsAre("....../a", "....\n....", "1.5", "2.5", "3.5", "4.5", "5.5"));
}

// toml++ skips spaces in all these places.
TEST(Toml, ReadsLettersBeyondAsciiAnywhere) {
  EXPECT_EQ(parse_toml("\xEF\xBB\xBFkey = 'ό' # ό", "f").at(0).values.at(0), "ό");
  EXPECT_THAT(value_of("\"\"\"Zürich \\\n  ό\"\"\""), ElementsAre("Zürich ό"));
  EXPECT_THAT(value_of("['Z', 'ZZ', 'Z80', 'Zz', 'ZZc3ZΩ']"),
              ElementsAre("Z", "ZZ", "Z80", "Zz", "ZZc3ZΩ"));
  EXPECT_EQ(parse_toml("ό = 1", "f").at(0).key, "ό") << "load_config() refuses unknown names";
  for (const char* wrong :
       {"b= 9{'.\xEF\xBB\xBF", "b = 0S\"ό", "b = 9t0[\"⸇氇", "b = 1 ό", "b = ό"})
    EXPECT_THAT(error_of(std::string("a = 1\n") + wrong), StartsWith("run.toml:2: ")) << wrong;
  EXPECT_THAT(error_of("a = 1\nb = '\xC3'"), StartsWith("run.toml:2: not UTF-8"));
}

TEST(Toml, RejectsMalformedTextWithFileAndLine) {
  EXPECT_THAT(error_of("a = 1\nb"), StartsWith("run.toml:2: "));
  EXPECT_THAT(error_of("a = host"), AllOf(StartsWith("run.toml:1: "), HasSubstr("in quotes")));
  EXPECT_THAT(error_of("a = 1 2"), StartsWith("run.toml:1: "));
  EXPECT_THAT(error_of("a = 1\n\na = 2"),
              AllOf(StartsWith("run.toml:3: "), HasSubstr("cannot redefine")));
  EXPECT_THAT(error_of("[model]\na = 1"),
              AllOf(StartsWith("run.toml:1: model: "), HasSubstr("not a table or a date")));
  for (const char* wrong : {"a =", "a = [1, 2", "a = [1,", "a = \"x", R"(a = "\q")",
                            R"(a = "\ud800")", "a = 18446744073709551615", "a = 1e400", "a = [[1]]",
                            "a = 1979-05-27", "a.b = 1", "a = \"\xFF\""})
    EXPECT_THAT(error_of(wrong), StartsWith("run.toml:1: ")) << wrong;
}

TEST(Toml, QuotesEveryByteSoThatItReadsBack) {
  std::string all;
  for (int byte = 1; byte < 128; ++byte)
    all += static_cast<char>(byte);
  EXPECT_THAT(value_of(toml_string(all)), ElementsAre(all));
}

}  // namespace
}  // namespace muo::trainer
