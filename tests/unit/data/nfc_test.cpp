// Compares NFC with the results of Hugging Face's tokenizers
// (scripts/golden/make_tokenizer_golden.py).
#include "data/tokenizer/nfc.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "support/files.h"
#include "support/paths.h"

namespace muo::data {
namespace {

std::vector<std::pair<std::string, std::string>> golden() {
  std::istringstream lines(test::read_file(std::filesystem::path(test::source_directory()) /
                                           "tests/golden/tokenizer/nfc.jsonl"));
  std::vector<std::pair<std::string, std::string>> out;
  for (std::string line; std::getline(lines, line);)
    out.push_back(nlohmann::json::parse(line).get<std::pair<std::string, std::string>>());
  return out;
}

TEST(Nfc, MatchesTokenizers) {
  const auto texts = golden();
  ASSERT_EQ(texts.size(), 25U);
  std::string all, expected;
  for (const auto& [text, normalized] : texts) {
    EXPECT_EQ(to_nfc(text), normalized) << text;
    EXPECT_EQ(to_nfc(normalized), normalized) << text;
    all += text + "a ";  // nothing composes across a letter or an invalid byte
    expected += normalized + "a ";
    all += "\xE4\xB8";
    expected += "\xE4\xB8";
  }
  EXPECT_EQ(to_nfc(all), expected);
}

TEST(Nfc, KeepsVowelsAfterSyllables) { EXPECT_EQ(to_nfc("\uAC00\u11A7"), "\uAC00\u11A7"); }

// In quadratic time, these would take minutes.
TEST(Nfc, OrdersAnyNumberOfMarks) {
  std::string below, above, text = "a";
  for (int i = 0; i < 200'000; ++i) {
    text += "\u0301\u0316";
    below += "\u0316";
    if (i > 0) above += "\u0301";
  }
  EXPECT_TRUE(to_nfc(text) == "\u00E1" + below + above);
}

TEST(Nfc, KeepsInvalidBytesAndDoesNotComposeAcrossThem) {
  for (const std::string bytes :
       {"\x80", "\xFF", "\xC0\x80", "\xE4\xB8", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF0\x9F\x8F"}) {
    ASSERT_EQ(utf8_prefix(bytes), 0U);
    EXPECT_EQ(to_nfc("e\u0301" + bytes + "\u0301e\u0301"), "\u00E9" + bytes + "\u0301\u00E9");
    EXPECT_EQ(to_nfc("e" + bytes), "e" + bytes);
  }
}

}  // namespace
}  // namespace muo::data
