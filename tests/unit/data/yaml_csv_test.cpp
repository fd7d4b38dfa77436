#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "data/examples/csv.h"
#include "data/examples/yaml.h"
#include "support/errors.h"

namespace muo::data {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Yaml, ReadsBothStyles) {
  const YamlValue value = parse_yaml(
      "# a comment\nlist:\n-\n  a: 1\n  'b': \"x\\ny\"\n- {a: [0, ~], b: }\ntext: >-\n  one\n  "
      "two\n",
      "f");
  const YamlValue& list = *value.find("list");
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(list.items[0].find("a")->text, "1");
  EXPECT_EQ(list.items[0].find("a")->line, 4);
  EXPECT_EQ(list.items[0].find("b")->text, "x\ny");
  EXPECT_EQ(list.items[1].find("a")->items[0].text, "0");
  EXPECT_TRUE(list.items[1].find("a")->items[1].is_null());
  EXPECT_TRUE(list.items[1].find("b")->is_null());
  EXPECT_EQ(value.find("text")->text, "one two");
  EXPECT_EQ(value.find("none"), nullptr);
}

TEST(Yaml, AcceptsLineEndsOfWindows) {
  const YamlValue value = parse_yaml("tasks:\r\n- label: a\r\n  shots: [1,\r\n 2]\r\n- b\r\n", "f");
  const YamlValue* const tasks = value.find("tasks");
  ASSERT_TRUE(tasks != nullptr && tasks->items.size() == 2U);
  EXPECT_EQ(tasks->items[0].find("label")->text, "a");
  EXPECT_EQ(tasks->items[0].find("shots")->items.at(1).text, "2");
  EXPECT_EQ(tasks->items[1].text, "b");
}

TEST(Yaml, NamesLineAndReason) {
  const auto message = [](const std::string& text) {
    return message_of<InputError>([&] { parse_yaml(text, "f"); });
  };
  EXPECT_THAT(message("a: 1\nb: [1\n"), StartsWith("f: line 3: malformed YAML: "));
  EXPECT_THAT(message("a: \xff\n"), HasSubstr("malformed YAML"));
  EXPECT_EQ(message("a: 1\nb: 2\na: 3\n"), "f: line 3: the key \"a\" occurs twice");
  EXPECT_EQ(message("a: &x 1\nb: *x\n"),
            "f: line 2: aliases are not supported: write out the value");
  EXPECT_EQ(message("a: !!int 1\n"), "f: line 1: tags are not supported: leave the tag out");
  EXPECT_EQ(message("? [a]\n: 1\n"), "f: line 1: a key that is not a scalar");
  EXPECT_EQ(message("a: 1\n---\nb: 1\n"), "f: line 2: a second document");
  EXPECT_EQ(message(""), "f: line 1: no document");
  EXPECT_THAT(message(std::string(100, '[') + std::string(100, ']')),
              HasSubstr("nested deeper than 64 levels"));
}

TEST(Csv, ReadsQuotes) {
  const std::vector<CsvRow> rows = parse_csv("a,b\r\n\n\"x, \"\"y\"\"\n\",\"\"\n,c,\nlast", "f");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[0].fields, ElementsAre("a", "b"));
  EXPECT_THAT(rows[1].fields, ElementsAre("x, \"y\"\n", ""));
  EXPECT_EQ(rows[1].line, 3);
  EXPECT_THAT(rows[2].fields, ElementsAre("", "c", ""));
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_THAT(rows[3].fields, ElementsAre("last"));
  EXPECT_TRUE(parse_csv("", "f").empty());
}

TEST(Csv, NamesLineAndReason) {
  EXPECT_EQ(message_of<InputError>([] { parse_csv("a\nb,\"c\n\n", "f"); }),
            "f: line 2: a quote is not closed");
  EXPECT_EQ(message_of<InputError>([] { parse_csv("a\n\"b\"c\n", "f"); }),
            "f: line 2: text follows a closing quote");
}

}  // namespace
}  // namespace muo::data
