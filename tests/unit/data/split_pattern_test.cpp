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
// them with one split, given as the number of bytes of each piece, negative for removed text.
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
  if (line["by"] == "tiktoken")
    return read_split_of_ranks(line["pattern"].get<std::string>(), "test");
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
  int refused = 0, by_tiktoken = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const bool is_tiktoken = lines[i]["by"] == "tiktoken";
    by_tiktoken += is_tiktoken ? 1 : 0;
    try {
      for (std::size_t t = 0; t < texts.size(); ++t)
        EXPECT_EQ(pieces_of(golden_split(lines[i]), texts[t]),
                  golden_pieces(texts[t], lines[i]["pieces"][t]))
            << lines[i]["by"] << ": " << lines[i]["pattern"] << ": " << texts[t];
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("may mean something else to tiktoken; write "));
      ++refused;
    }
  }
  EXPECT_EQ(refused, 28);  // of tiktoken's, as both dialects read the others alike
  EXPECT_EQ(by_tiktoken, 50);
}

TEST(SplitPattern, IsReadByPcre2AsByOniguruma) {
  std::vector<Split> known;
  for (const char* const name : {"gpt2", "gpt4", "gpt4o", "llama3", "nanochat"})
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

TEST(SplitPattern, IsTakenUnchangedUnlessItsNameOrTextIsKnown) {
  const Split gpt4 = read_split("gpt4", "test");
  EXPECT_EQ(gpt4.pattern,
            R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|(?>\p{N}{1,3})| ?[^\s\p{L}\p{N}]++)"
            R"([\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s)");
  for (const auto& read : {read_split, read_split_of_ranks}) {
    const Split spelled =  // as tiktoken spells it
        read(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++)"
             R"([\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
             "test");
    EXPECT_EQ(spelled.pattern, gpt4.pattern);
    EXPECT_EQ(spelled.behavior, SplitBehavior::kIsolated);
    EXPECT_EQ(read(gpt4.pattern, "test").pattern, gpt4.pattern);
    const Split own = read("[a-z]+ ?", "test");
    EXPECT_EQ(own.pattern, "[a-z]+ ?");
    EXPECT_EQ(pieces_of(own, "ab CD ef"), (Pieces{"ab ", "ef"}));
    EXPECT_EQ(message_of<InputError>([&] { return read("a\xFF", "t"); }),
              "t: the split pattern 'a\xFF' is not UTF-8");
  }
  EXPECT_EQ(read_split(R"(\w+$)", "test").pattern, R"(\w+$)");
}

TEST(SplitPattern, NamesWhatTiktokenMayReadDifferently) {
  const auto error = [](std::string_view pattern) {
    return message_of<InputError>([&] { return read_split_of_ranks(pattern, "--pattern"); });
  };
  EXPECT_EQ(error("a|^b"),
            "--pattern: the split pattern 'a|^b': at byte 2: '^' may mean something else to "
            "tiktoken; write \\A");
  for (const auto& [pattern, what] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"a$", R"(at byte 1: '$' may mean something else to tiktoken; write \z)"},
           {R"([$^]\$\^|\p{N}{1,3}+)", "at byte 18: '}+'"},
           {"a{2}?", "at byte 3: '}?'"},
           {R"(\bx)", R"(at byte 0: '\b' may mean something else to tiktoken; write it without)"},
           {R"(a\w)", R"(at byte 1: '\w' may mean something else to tiktoken; write [\p{Alph)"},
           {R"([\W])", R"(at byte 1: '\W' may mean something else to tiktoken; write [^\p{A)"},
           {R"([\b])", R"(at byte 1: '\b')"},
           {R"((a)\1)", R"('\1')"},
           {R"(\pL)", R"('\p' may mean something else to tiktoken; write \p{L})"},
           {R"(\p{L}\PL)", R"(at byte 5: '\P' may mean something else to tiktoken; write \P{L})"},
           {R"(\xE9)", R"('\x' may mean something else to tiktoken; write \x{41})"},
           {R"([\U000000ed])", R"(at byte 1: '\U')"},
           {R"(\Qa)", R"('\Q')"},
           {"a\\", R"(at byte 1: '\')"},
           {"(?<x>a)", "at byte 0: '(?' may mean something else to tiktoken; write (...) without"},
           {"(?P<x>a)", "'(?'"},
           {"(?x)a", "'(?'"},
           {"(?i)a", "'(?'"},
           {"(?i:'ss)", "'(?'"},
           {"(?i:a-z)", "'(?'"},
           {"(a?)+b", "at byte 3: ')+' may mean something else to tiktoken; write a group that"},
           {"((?=a)|b)*c", "')*'"},
           {"(b(a|)){2}c", "'){'"},
           {"[[:alpha:]]", "at byte 1: '[:'"},
           {"[a-z--b]", "at byte 4: '--'"},
           {"[a-[b]]", "at byte 2: '-['"},
           {"[a~~b]", "at byte 2: '~~'"},
           {"[]a]", "at byte 0: '[]'"},
           {"[^]a]", "at byte 0: '[^]'"},
       })
    EXPECT_THAT(error(pattern), HasSubstr(what)) << pattern;
  for (
      const std::string_view pattern :
      {R"([\p{Han}]+|[^\r\n\p{L}]?[\p{Lu}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\s+(?!\S))",
       R"((?<!a)b|(?>[ab]c)+|a{,2}b|(?:[?*]|\?|\*)+|a(?=b)|[^^$]|\x{e9}\h\u0061|[a\-\]]--|a::)",
       R"((?i:[sdmt]|ll|ve|re)|(a|b){2}|\p{N}{1,3}|(a?b)?|x\z)"})
    EXPECT_EQ(read_split_of_ranks(pattern, "test").pattern, pattern);
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
