#include "data/tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "data/tokenizer/text_splitter.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/sanitized.h"

namespace muo::data {
namespace {

using test::message_of;
using testing::HasSubstr;

using Pieces = std::vector<std::string>;

Pieces pieces_of(const Split& split, std::string_view text) {
  Pieces pieces;
  TextSplitter({split}, "test").split(text, 0, text.size(), [&](std::string_view piece) {
    pieces.emplace_back(piece);
  });
  return pieces;
}

// Lines of scripts/golden/make_tokenizer_golden.py: the texts, then for each package how it cuts
// them with one split: the number of bytes of each piece, negative for removed text.
std::vector<nlohmann::json> golden_lines() {
  std::istringstream lines(test::read_file(std::filesystem::path(test::source_directory()) /
                                           "tests/golden/tokenizer/pieces.jsonl"));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(lines, line);)
    out.push_back(nlohmann::json::parse(line));
  return out;
}

Pieces golden_pieces(std::string_view text, const nlohmann::json& lengths) {
  Pieces pieces;
  for (const int length : lengths) {
    const auto size = static_cast<std::size_t>(std::abs(length));
    if (length > 0) pieces.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  EXPECT_TRUE(text.empty());
  return pieces;
}

Split golden_split(const nlohmann::json& line) {
  if (line["by"] == "tiktoken") return read_split(line["pattern"].get<std::string>(), "test");
  const std::vector<std::string> behaviors = {"Isolated", "Removed", "MergedWithPrevious",
                                              "MergedWithNext", "Contiguous"};
  const auto found =
      std::find(behaviors.begin(), behaviors.end(), line.value("behavior", "Isolated"));
  return {.pattern = line["pattern"],
          .behavior = static_cast<SplitBehavior>(found - behaviors.begin()),
          .invert = line.value("invert", false)};
}

TEST(SplitPattern, CutsAsTokenizersAndTiktokenDo) {
  const std::vector<nlohmann::json> lines = golden_lines();
  ASSERT_GT(lines.size(), 150U);
  const std::vector<std::string> texts = lines.front()["texts"];
  for (std::size_t i = 1; i < lines.size(); ++i)
    for (std::size_t t = 0; t < texts.size(); ++t)
      EXPECT_EQ(pieces_of(golden_split(lines[i]), texts[t]),
                golden_pieces(texts[t], lines[i]["pieces"][t]))
          << lines[i]["by"] << ": " << lines[i]["pattern"] << ": " << texts[t];
}

TEST(SplitPattern, ReadsHexadecimalNumbersInBothCases) {
  const Split split = read_split(R"(\xEA|\xea|\u00EB|\u00eb|[\x{EC}\U000000ed])", "test");
  EXPECT_EQ(pieces_of(split, "êëìí"), (Pieces{"ê", "ë", "ì", "í"}));
}

TEST(SplitPattern, IsReadByPcre2AsByOniguruma) {
  std::vector<Split> known;
  for (const char* const name : {"gpt2", "gpt4", "gpt4o", "nanochat"})
    known.push_back(read_split(name, "test"));
  for (const nlohmann::json& line : golden_lines())
    if (line.contains("pattern") && line["by"] == "tokenizers" && !line.contains("behavior") &&
        !pcre2_pattern(golden_split(line)).empty())
      known.push_back(golden_split(line));
  ASSERT_GE(known.size(), 12U);
  const std::vector<std::string> characters = golden_lines().front()["texts"];
  std::string all;
  for (const std::string& text : characters)
    all += text;
  std::vector<std::string_view> letters;
  for (std::size_t at = 0; at < all.size();) {
    std::size_t end = at + 1;
    while (end < all.size() && (all[end] & 0xC0) == 0x80)
      ++end;
    letters.push_back(std::string_view(all).substr(at, end - at));
    at = end;
  }
  std::mt19937_64 random(11);  // NOLINT(cert-msc*): the same texts each time
  std::string text;
  for (int i = 0; i < (test::kSanitized ? 20'000 : 200'000); ++i)
    text += letters[random() % letters.size()];
  for (const Split& split : known) {
    Split unknown = split;
    unknown.pattern = "(?:" + split.pattern + ")";
    ASSERT_FALSE(pcre2_pattern(split).empty()) << split.pattern;
    ASSERT_TRUE(pcre2_pattern(unknown).empty());
    EXPECT_EQ(pieces_of(split, text), pieces_of(unknown, text)) << split.pattern;
  }
}

TEST(SplitPattern, OfAnotherTextBetweenMatchesIsLeftToOniguruma) {
  const std::string gpt2 = read_split("gpt2", "test").pattern;
  using enum SplitBehavior;
  EXPECT_FALSE(pcre2_pattern({.pattern = gpt2, .behavior = kRemoved, .invert = true}).empty());
  EXPECT_TRUE(pcre2_pattern({.pattern = gpt2, .behavior = kRemoved}).empty());
  EXPECT_TRUE(pcre2_pattern({.pattern = gpt2, .behavior = kContiguous}).empty());
  EXPECT_FALSE(pcre2_pattern({.pattern = R"(\p{N})"}).empty());
  EXPECT_TRUE(pcre2_pattern({.pattern = R"(\p{N})", .behavior = kRemoved, .invert = true}).empty());
}

TEST(SplitPattern, NamesWhatIsNotReadAsTiktokenReadsIt) {
  const auto error = [](std::string_view pattern) {
    return message_of<InputError>([&] { return read_split(pattern, "--pattern"); });
  };
  EXPECT_EQ(error("a|^b"),
            "--pattern: the split pattern 'a|^b': at byte 2: '^' looks behind, which is not "
            "supported");
  for (const auto& [pattern, what] : std::vector<std::pair<std::string_view, std::string_view>>{
           {R"(\bx)", R"('\b' is not supported)"},
           {"(?<=a)b", "look-behind"},
           {R"((a)\1)", R"('\1' is not supported)"},
           {"(?<x>a)", "groups are"},
           {"(?x)a", "groups are"},
           {"(?P<x>a)", "groups are"},
           {"(a", "no ')' ends the group"},
           {"a)", "closes no group"},
           {"a*", "it can match the empty string"},
           {"(?=a)", "it can match the empty string"},
           {"(a?)+b", "an expression that may match the empty string is repeated"},
           {"(?=a)+b", "a zero-width expression is repeated"},
           {"a**", "a quantifier after a quantifier"},
           {"*a", "'*' repeats nothing"},
           {"a{0}b", "'{' begins no count"},
           {"a{3,2}", "'{' begins no count"},
           {"a{,}", "'{' begins no count"},
           {"a{x", "'{' begins no count"},
           {"a{1001}", "at most 1000"},
           {"a{4294967297}", "at most 1000"},
           {"(?i)é", "(?i) is supported for ASCII only, and this is U+00E9"},
           {R"((?i)\p{Lu})", "a property under (?i)"},
           {R"(\p{scx=Han})", "the property 'scx=Han' is not supported"},
           {R"(\p{L)", "no '}' ends the property"},
           {R"(\Qa)", R"('\Q' is not supported)"},
           {R"(\x{D800})", "not the hexadecimal number"},
           {R"(\x4)", "not the hexadecimal number"},
           {"a\\", "a backslash ends it"},
           {"[a", "no ']' ends the class"},
           {"[]a]", "without characters"},
           {"[a&&]", "without characters"},
           {"[a-c-e]", R"('-' as a character of a class is \-)"},
           {"[c-a]", "a descending range"},
           {"[a-[b]]", "a range without an end"},
           {"[[:letter:]]", "'[:letter:]' is not a POSIX class"},
           {"[a~~b]", "the operator ~~"},
           {"[[:alpha", "no ':]' ends the class"},
           {"a\xFF", "it is not UTF-8"},
       })
    EXPECT_THAT(error(pattern), HasSubstr(what)) << pattern;
  std::string deep(200, '(');
  EXPECT_THAT(error(deep + 'a' + std::string(200, ')')), HasSubstr("nested"));
}

TEST(SplitPattern, NamesWhatOnigurumaDoesNotReadOrReadsOtherwiseByVersion) {
  const auto error = [](const std::string& pattern) {
    return message_of<InputError>(
        [&] { return TextSplitter({{.pattern = pattern}}, "t.json").cuts_text(); });
  };
  EXPECT_EQ(error("("),
            "t.json: the split pattern '(' is not a regular expression to Oniguruma: end pattern "
            "with unmatched parenthesis");
  EXPECT_THAT(error(R"(\p{Nonsense})"), HasSubstr("invalid character property name"));
  EXPECT_THAT(error(R"([a\P{^Grapheme_Extend}])"),
              HasSubstr("the property 'Grapheme_Extend' is not the same in all its versions"));
}

TEST(SplitPattern, SaysThatItGivesUp) {
  const std::string text = std::string(60, 'a') + "!";
  EXPECT_THAT(message_of<InputError>(
                  [&] { return pieces_of({.pattern = "(?:a|a|aa)+[bc]"}, text).size(); }),
              HasSubstr("gives up on a text (retry-limit-in-match over)"));
}

TEST(SplitPattern, SeesNoTextBeforeBytesThatAreNotUtf8) {
  EXPECT_EQ(pieces_of({.pattern = R"((?<=a)b|\Ac)"},
                      "abac\xFF\xFE"
                      "bcc\xC3"),
            (Pieces{"a", "b", "ac", "\xFF\xFE", "bcc", "\xC3"}));
  EXPECT_EQ(pieces_of({.pattern = R"((?<=a)b|\Ac)"},
                      "\xFF"
                      "cb"),
            (Pieces{"\xFF", "c", "b"}));
}

}  // namespace
}  // namespace muo::data
