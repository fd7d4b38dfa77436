#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/token_data.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/tiktoken_file.h"
#include "data/tokenizer/tokenizer_json.h"
#include "kit/bpe_trainer.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/sanitized.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

using Ids = std::vector<std::int32_t>;
using TokenizerPointer = std::unique_ptr<const Tokenizer>;

fs::path golden(std::string_view name) {
  return fs::path(test::source_directory()) / "tests/golden/tokenizer" / name;
}

struct GoldenText {
  std::string by, text;
  Ids ids;
};

std::vector<GoldenText> golden_texts() {
  std::istringstream lines(test::read_file(golden("ids.jsonl")));
  std::vector<GoldenText> out;
  for (std::string line; std::getline(lines, line);) {
    const auto object = Json::parse(line);
    out.push_back({object["by"], object["text"], object["ids"]});
  }
  return out;
}

TokenizerPointer ranks_cut_by(std::string_view pattern) {
  return std::make_unique<BpeTokenizer>(
      read_tiktoken_file(test::read_file(golden("ranks.tiktoken")), "ranks", pattern), "ranks");
}

// The tokenizers of scripts/golden/make_tokenizer_golden.py, by name.
std::map<std::string, TokenizerPointer> golden_tokenizers() {
  std::map<std::string, TokenizerPointer> out;
  for (const char* const pattern : {"gpt2", "gpt4", "gpt4o", "nanochat"})
    out.emplace(pattern, ranks_cut_by(pattern));
  out.emplace("tokenizer.json", open_tokenizer(golden("tokenizer.json")));
  return out;
}

std::string random_bytes(std::mt19937_64& random, std::size_t size) {
  constexpr std::string_view kPieces[] = {"a",        "b ", " c",       "\n",   "  ",   "'s",
                                          "1",        "é",  "中",       "\xF0", "\x9F", "\xFF",
                                          "\xE4\xB8", "👍",  "\xC2\xA0", "The "};
  std::string out;
  while (out.size() < size)
    out += kPieces[random() % std::size(kPieces)];
  return out;
}

TEST(Tokenizer, MatchesTheIdsOfTiktokenAndTokenizers) {
  const auto tokenizers = golden_tokenizers();
  const std::vector<GoldenText> texts = golden_texts();
  ASSERT_GT(texts.size(), 300U);
  for (const GoldenText& each : texts) {
    const Tokenizer& tokenizer = *tokenizers.at(each.by);
    // tokenizers matches special tokens in every text.
    const bool by_tokenizers = each.by == "tokenizer.json";
    ASSERT_EQ((by_tokenizers ? encode_special : encode)(tokenizer, each.text), each.ids)
        << each.by << ": " << each.text;
    ASSERT_EQ(decode(tokenizer, each.ids), each.text);
  }
}

TEST(Tokenizer, IsLosslessForAnyBytes) {
  std::mt19937_64 random(3);  // NOLINT(cert-msc*): the same texts each time
  const auto tokenizers = golden_tokenizers();
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_bytes(random, static_cast<std::size_t>(i));
    for (const auto& [name, tokenizer] : tokenizers)
      ASSERT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text) << name;
  }
}

TEST(Tokenizer, EncodesTheSameInPartsAndByThreads) {
  std::mt19937_64 random(5);  // NOLINT(cert-msc*): the same texts each time
  const TokenizerPointer tokenizer = ranks_cut_by("gpt4");
  std::string text;
  // Includes pieces longer than the look-ahead.
  for (int i = 0; i < (test::kSanitized ? 10 : 40); ++i)
    text += random_bytes(random, 20'000) + std::string(i % 10 == 9 ? 150'000 : 0, ' ') + "x";
  ASSERT_GT(text.size(), test::kSanitized ? 300'000U : 1'000'000U);
  const Ids whole = encode(*tokenizer, text);
  EXPECT_EQ(decode(*tokenizer, whole), text);
  for (const int threads : {1, 2, 5}) {
    Ids together = {-1};
    encode_parallel(*tokenizer, text, threads, together);
    EXPECT_EQ(together.front(), -1);
    EXPECT_TRUE(std::equal(together.begin() + 1, together.end(), whole.begin(), whole.end()))
        << threads;
  }
  Ids parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.size(), at + 1 + random() % 5000);
    const std::size_t reached = tokenizer->encode(text, at, end, parts);
    ASSERT_GE(reached, end);
    at = reached;
  }
  EXPECT_EQ(parts, whole);
}

TEST(Tokenizer, FindsSpecialTokensOnlyIfRequested) {
  const TokenizerPointer tokenizer = open_tokenizer(golden("tokenizer.json"));
  ASSERT_EQ(tokenizer->special_tokens().size(), 2U);
  const std::int32_t bos = tokenizer->special_tokens().front().id;
  EXPECT_EQ(find_bos(*tokenizer), bos);
  EXPECT_EQ(tokenizer->vocab_size(), 702);
  const std::string text = "<|bos|>Hi<|user_start|><|bos|";
  const Ids plain = encode(*tokenizer, text);
  EXPECT_THAT(plain, testing::Not(testing::Contains(testing::Ge(bos))));
  const Ids special = encode_special(*tokenizer, text);
  EXPECT_EQ(special.front(), bos);
  EXPECT_THAT(special, testing::Contains(bos + 1));
  EXPECT_EQ(std::count(special.begin(), special.end(), bos), 1);
  EXPECT_EQ(decode(*tokenizer, plain), text);
  EXPECT_EQ(decode(*tokenizer, special), text);
  EXPECT_EQ(bytes_of_tokens(*tokenizer).at(static_cast<std::size_t>(bos)), 0);
  EXPECT_EQ(bytes_of_tokens(*tokenizer).front(), 1);
}

TEST(Tokenizer, OfBytesMatchesItsTokens) {
  const TokenizerPointer tokenizer = open_tokenizer("byte");
  EXPECT_EQ(tokenizer->vocab_size(), kByteVocab);
  EXPECT_EQ(encode(*tokenizer, "a\xFF"), (Ids{'a', 0xFF}));
  EXPECT_EQ(encode_special(*tokenizer, "<|bos|>a"), (Ids{kBosToken, 'a'}));
  EXPECT_EQ(decode(*tokenizer, Ids{'a', 0xFF}), "a\xFF");
  EXPECT_EQ(find_bos(*tokenizer), kBosToken);
  EXPECT_EQ(tokenizer->bytes_of(257), "");
  EXPECT_EQ(tokenizer->bytes_of(-1), "");
}

TEST(TokenizerJson, RoundTrips) {
  for (const char* const pattern :
       {"gpt2", "gpt4", "gpt4o", "a|b", R"([\p{L}&&[^a]]+|(?>\p{N}{2}))"}) {
    BpeDefinition definition =
        read_tiktoken_file(test::read_file(golden("ranks.tiktoken")), "ranks", pattern,
                           {{"<|bos|>", 900}, {"<|end of text|>", 901}});
    const std::string json = write_tokenizer_json(definition);
    const BpeTokenizer written(std::move(definition), "ranks");
    const BpeTokenizer read(read_tokenizer_json(json, "json"), "json");
    EXPECT_EQ(read.fingerprint(), written.fingerprint());
    EXPECT_EQ(read.cuts_text(), std::string_view(pattern).starts_with("gpt"));
    EXPECT_EQ(read.vocab_size(), 902);
    for (const GoldenText& each : golden_texts())
      ASSERT_EQ(encode(read, each.text), encode(written, each.text));
  }
}

TEST(TokenizerJson, FingerprintsDependOnEverythingThatAffectsIds) {
  const std::string base = test::read_file(golden("tokenizer.json"));
  const auto fingerprint = [](const std::string& text) {
    return BpeTokenizer(read_tokenizer_json(text, "json"), "json").fingerprint();
  };
  std::set<std::string> seen = {fingerprint(base)};
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = base;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return fingerprint(text);
  };
  for (const auto& [from, to] : std::map<std::string_view, std::string_view>{
           {R"(\\p{N}{1,2})", R"(\\p{N}{1,3})"},
           {R"(\\p{N}{1,2}|)", R"(\\p{N}{1,2}|x|)"},
           {R"("Isolated")", R"("Contiguous")"},
           {R"("Isolated","invert":)", R"("MergedWithNext","invert":)"},
           {R"("Isolated","invert":false)", R"("Contiguous","invert":true)"},
           {R"("<|bos|>")", R"("<|start|>")"},
           {R"("ignore_merges":false)", R"("ignore_merges":true)"},
           {R"("normalizer":null)", R"("normalizer":{"type":"NFC"})"},
           {R"("special":true)", R"("special":false)"},
           {R"("normalized":false,"special":true)", R"("normalized":true,"special":false)"}})
    EXPECT_TRUE(seen.insert(changed(from, to)).second) << from;
}

// The golden file with one piece of text replaced.
std::string broken(std::string_view from, std::string_view to) {
  std::string text = test::read_file(golden("tokenizer.json"));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerJson, NamesUnsupportedFeatures) {
  const auto error = [](std::string_view from, std::string_view to) {
    return message_of<InputError>([&] {
      return BpeTokenizer(read_tokenizer_json(broken(from, to), "t.json"), "t.json").vocab_size();
    });
  };
  EXPECT_THAT(error(R"("normalizer":null)", R"("normalizer":{"type":"NFKC"})"),
              HasSubstr("t.json: normalizer: NFKC changes the text"));
  EXPECT_THAT(error(R"("type":"BPE")", R"("type":"Unigram")"), HasSubstr("model.type"));
  EXPECT_THAT(error(R"("dropout":null)", R"("dropout":0.1)"), HasSubstr("model.dropout"));
  EXPECT_THAT(error(R"("add_prefix_space":false)", R"("add_prefix_space":true)"),
              HasSubstr("pre_tokenizer.pretokenizers[1].add_prefix_space"));
  EXPECT_THAT(error(R"("behavior":"Isolated")", R"("behavior":"Sideways")"),
              HasSubstr("behavior Sideways is not supported"));
  EXPECT_THAT(error(R"(\\p{N}{1,2})", R"((\\p{N})"), HasSubstr("is not a regular expression"));
  EXPECT_THAT(error(R"("lstrip":false)", R"("lstrip":true)"), HasSubstr("added_tokens[0].lstrip"));
  EXPECT_THAT(error(R"("id":700)", R"("id":-1)"), HasSubstr("added_tokens[0]: the id"));
  EXPECT_THAT(error(R"("!":)", R"("??":)"), HasSubstr("model.merges[12]: a part"));
  EXPECT_THAT(error(R"("Ă":)", R"("ĂĂ":)"), HasSubstr("no token for byte 2:"));
  EXPECT_THAT(error(R"("merges":[)", R"("merges":[["中","a"],)"),
              HasSubstr("not stand for a byte"));
  EXPECT_THAT(message_of<InputError>([] { return read_tokenizer_json("{", "t.json"); }),
              HasSubstr("t.json"));
}

// A tokenizer of bytes and a few merges. `added` are the texts of added tokens, the special ones of
// which begin with '<'; their ids in the file are wrong.
BpeTokenizer small_tokenizer(const std::vector<std::string>& added,
                             const std::function<void(Json&)>& change = {}) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.add(std::string(1, static_cast<char>(byte)), byte);
  for (const auto& [bytes, id] : {std::pair{"th", 256}, {"the", 257}, {" the", 258}})
    vocabulary.add(bytes, id);
  Json file = Json::parse(
      write_tokenizer_json({.splits = {read_split("gpt2", "gpt2")},
                            .vocabulary = vocabulary,
                            .merges = {{'t', 'h', 256}, {256, 'e', 257}, {' ', 257, 258}},
                            .whole_pieces = false,
                            .special = {},
                            .literals = {}}));
  for (const std::string& text : added)
    file["added_tokens"].push_back({{"id", 999}, {"content", text}, {"special", text[0] == '<'}});
  if (change) change(file);
  return {read_tokenizer_json(file.dump(), "t.json"), "t.json"};
}

// The bytes that UTF-8 never contains, in tokenizer.json's alphabet, which is Latin-1 for them.
constexpr std::array kNotUtf8 = {"À", "Á", "õ", "ö", "÷", "ø", "ù", "ú", "û", "ü", "ý", "þ", "ÿ"};

void remove_what_utf8_lacks(Json& file) {
  for (const char* const letter : kNotUtf8)
    file["model"]["vocab"].erase(letter);
}

// All ids are those of tokenizers 0.23.3.
TEST(TokenizerJson, GivesAddedTokensTheIdsOfTheVocabulary) {
  EXPECT_EQ(encode(small_tokenizer({"the"}), "the other the"),
            (Ids{257, 32, 'o', 257, 'r', 32, 257}));
  EXPECT_EQ(encode(small_tokenizer({"Ġthe"}), "the Ġthe the"), (Ids{257, 32, 258, 258}));
  EXPECT_EQ(encode(small_tokenizer({"a"}), "banana"), (Ids{'b', 'a', 'n', 'a', 'n', 'a'}));
  EXPECT_EQ(encode(small_tokenizer({"foo", "", "foo", "bar"}), "foo bar the"),
            (Ids{259, 32, 260, 258}));
  const BpeTokenizer special = small_tokenizer({"foo", "<s>"});
  EXPECT_EQ(special.vocab_size(), 261);
  EXPECT_EQ(find_bos(special), 260);
  // A special token is not matched in texts, but it is nevertheless a token of the model.
  const BpeTokenizer made = small_tokenizer({}, [](Json& file) {
    file["added_tokens"] = {{{"id", 257}, {"content", "the"}, {"special", true}}};
  });
  EXPECT_EQ(encode(made, "other the"), (Ids{'o', 257, 'r', 258}));
}

TEST(TokenizerJson, DoesNotNeedBytesThatUtf8Lacks) {
  EXPECT_EQ(encode(small_tokenizer({}, remove_what_utf8_lacks), "the Führer the"),
            (Ids{257, 32, 'F', 195, 188, 'h', 'r', 'e', 'r', 258}));
  EXPECT_THAT(message_of<InputError>(
                  [] { return encode(small_tokenizer({}, remove_what_utf8_lacks), "a\xFC"); }),
              HasSubstr("no token for byte 0xFC"));
  // If these letters are added tokens, they are characters of texts.
  const BpeTokenizer letters =
      small_tokenizer({kNotUtf8.begin(), kNotUtf8.end()}, remove_what_utf8_lacks);
  EXPECT_EQ(encode(letters, "ü ÿ"), (Ids{246 + 9, 32, 246 + 12}));
  EXPECT_EQ(decode(letters, encode(letters, "Führer")), "Führer");
}

TEST(TokenizerJson, AcceptsDifferencesWithoutEffect) {
  const std::string text = "the Führer the";
  const Ids ids = encode(small_tokenizer({}), text);
  for (const std::function<void(Json&)>& change : std::vector<std::function<void(Json&)>>{
           [](Json& file) { file["model"]["byte_fallback"] = true; },
           [](Json& file) { file["model"]["unk_token"] = "<unk>"; },
           [](Json& file) { file["model"]["vocab"]["中"] = 300; },  // no bytes, hence in no text
           [](Json& file) { file["model"]["vocab"][""] = 301; }})
    EXPECT_EQ(encode(small_tokenizer({}, change), text), ids);
}

// The same for tokenizer.json, in which line ends are white space.
TEST(TiktokenFile, AcceptsLineEndsOfWindows) {
  for (const char* const name : {"ranks.tiktoken", "tokenizer.json"}) {
    const std::string text = test::read_file(golden(name));
    std::string windows;
    for (const char c : text)
      windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
    const auto fingerprint = [&](const std::string& file) {
      return BpeTokenizer(file[0] == '{' ? read_tokenizer_json("\r\n" + file, "f")
                                         : read_tiktoken_file(file, "f", "gpt2"),
                          "f")
          .fingerprint();
    };
    EXPECT_EQ(fingerprint(windows), fingerprint(text)) << name;
  }
}

TEST(TokenizerJson, SplitsBetweenAddedTokensAsInSeparateTexts) {
  const std::string json = broken(R"("special":true)", R"("special":false)");
  const std::string pattern = R"("Regex":")";
  std::string own = json;
  const std::size_t at = json.find(pattern) + pattern.size();
  own.replace(at, json.find('"', at) - at, R"((?<=>)a|.)");
  const BpeTokenizer tokenizer(read_tokenizer_json(own, "json"), "json");
  EXPECT_FALSE(tokenizer.cuts_text());
  EXPECT_EQ(encode(tokenizer, "<|bos|>a b<|bos|>c"), (Ids{700, 'a', ' ', 'b', 700, 'c'}));
}

TEST(TokenizerJson, RefusesAddedTokensThatOverlapWithSpecialOnes) {
  const auto read = [](const std::string& text, bool is_later, bool is_special_later = false) {
    return small_tokenizer({text, "<ab"}, [&](Json& file) {
      file["added_tokens"][0]["special"] = false;
      file["added_tokens"][0]["normalized"] = is_later;
      file["added_tokens"][1]["normalized"] = is_special_later;
    });
  };
  EXPECT_EQ(read("cd>", false).vocab_size(), 261);
  for (const char* const text : {"ab", "<a", "b>", "x<", "_<ab_"})
    for (const bool is_special_later : {false, true}) {
      EXPECT_THAT(message_of<InputError>([&] { return read(text, false, is_special_later); }),
                  HasSubstr(concat("t.json: added_tokens: '", text,
                                   "' may share bytes with '<ab', which is special")));
    }
  EXPECT_EQ(encode_special(read("b>", true), "<ab>b>"), (Ids{260, '>', 259}));
  EXPECT_ANY_THROW(read("b>", true, true));
  // Among two special tokens, the one that is not normalized is matched first.
  EXPECT_THAT(message_of<InputError>([] {
                return small_tokenizer({"<ab", "<a"}, [](Json& file) {
                  file["added_tokens"][1]["normalized"] = false;
                });
              }),
              HasSubstr("'<a' may share bytes with '<ab'"));
}

// Cases that versions of tokenizers treat differently, or match in several passes.
TEST(TokenizerJson, RefusesAmbiguousAddedTokens) {
  for (const char* const flag : {"special", "normalized"})
    EXPECT_THAT(message_of<InputError>([&] {
                  return small_tokenizer({"foo", "foo"}, [&](Json& file) {
                    file["added_tokens"][0][flag] = false;
                    file["added_tokens"][1][flag] = true;
                  });
                }),
                HasSubstr("added_tokens[1]: 'foo' occurs twice"));
  EXPECT_THAT(message_of<InputError>([] {
                return small_tokenizer({"foo", "bar"},
                                       [](Json& file) { file["model"]["vocab"]["foo"] = 400; });
              }),
              HasSubstr("added_tokens: 'bar' is not in model.vocab, in which 'foo'"));
}

TEST(TokenizerJson, EncodesWholePiecesAsSpecialTokensOfTheVocabulary) {
  const auto read = [](bool is_in_vocabulary) {
    return small_tokenizer({"<s>"}, [&](Json& file) {
      file["model"]["ignore_merges"] = true;
      if (is_in_vocabulary) file["model"]["vocab"]["<s>"] = 259;
      file["pre_tokenizer"]["pretokenizers"][0] = {
          {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}};
    });
  };
  EXPECT_EQ(encode(read(true), "a <s>"), (Ids{'a', ' ', 259}));
  EXPECT_EQ(encode(read(false), "a <s>"), (Ids{'a', ' ', '<', 's', '>'}));
  EXPECT_EQ(read(true).fingerprint(), read(false).fingerprint());
}

// The ids are those of tokenizers 0.23.3, with the matching of special tokens disabled.
TEST(TokenizerJson, NormalizesBetweenTheAddedTokensThatAreNotNormalized) {
  const std::string text = "e\u0301<s>\u0338  \u0338x   n\u0303";
  const auto change = [](Json& file) {
    file["added_tokens"][0]["normalized"] = false;
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  };
  const BpeTokenizer tokenizer = small_tokenizer({"n", "   ", "x"}, change);
  EXPECT_FALSE(tokenizer.cuts_text());
  const Ids ids = encode(tokenizer, text);
  EXPECT_EQ(ids,
            (Ids{195, 169, 60, 115, 226, 137, 175, 32, 32, 204, 184, 120, 259, 110, 204, 131}));
  EXPECT_EQ(decode(tokenizer, ids), "\u00E9<s\u226F  \u0338x   n\u0303");
}

TEST(TiktokenFile, RemovesTextThatItsPatternDoesNotMatch) {
  const TokenizerPointer tokenizer = ranks_cut_by("[b-z]+");
  EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, "bad cap")), "bdcp");
}

TEST(TiktokenFile, NamesTheMalformedLine) {
  const auto error = [](const std::string& text) {
    return message_of<InputError>([&] { return read_tiktoken_file(text, "r.tiktoken", "gpt2"); });
  };
  EXPECT_THAT(error("IQ== 0\nIg= 1\n"), HasSubstr("r.tiktoken: line 2: "));
  EXPECT_THAT(error("IQ== 0\nIg== x\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("IQ== 0\nIg== -1\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("IQ== 0\nIg== 0\n"), HasSubstr("rank 0 occurs twice"));
  EXPECT_THAT(error("IQ== 0\nIQ== 1\n"), HasSubstr("the token of rank 1 occurs twice"));
  EXPECT_THAT(message_of<InputError>([] { return open_tokenizer(golden("ranks.tiktoken")); }),
              AllOf(HasSubstr("700 ranks"), HasSubstr("tokenizer convert --pattern")));
  EXPECT_THAT(message_of<InputError>([] { return open_tokenizer("/nowhere/tokenizer.json"); }),
              HasSubstr("--tokenizer /nowhere/tokenizer.json: no such file; give byte"));
}

BpeDefinition trained(std::int64_t vocab_size, int threads,
                      const std::vector<std::string>& special = {}) {
  std::vector<std::string> texts;
  for (const GoldenText& each : golden_texts())
    if (each.by == "nanochat") texts.push_back(each.text);
  kit::BpeTrainer trainer("nanochat", threads);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  trainer.add(std::span(views).subspan(0, 30));
  trainer.add(std::span(views).subspan(30));
  return trainer.train(vocab_size, special);
}

TEST(BpeTrainer, LearnsTheSameMergesAsRustbpe) {
  const Vocabulary expected =
      read_tiktoken_file(test::read_file(golden("ranks.tiktoken")), "ranks", "gpt2").vocabulary;
  for (const int threads : {1, 2, 3}) {
    const BpeDefinition definition = trained(700, threads);
    ASSERT_EQ(definition.vocabulary.size(), 700);
    for (std::int32_t id = 0; id < 700; ++id)
      ASSERT_EQ(definition.vocabulary.bytes_of(id), expected.bytes_of(id)) << id;
  }
}

TEST(BpeTrainer, PutsSpecialTokensLast) {
  const BpeDefinition definition = trained(300, 1, {"<|bos|>", "<|x|>"});
  ASSERT_EQ(definition.special.size(), 2U);
  EXPECT_EQ(definition.special[0].id, 298);
  EXPECT_EQ(definition.special[1].id, 299);
  EXPECT_EQ(definition.merges.size(), 42U);
}

TEST(BpeTrainer, EndsIfNothingIsLeftToMerge) {
  kit::BpeTrainer trainer("a+|b+", 1);
  const std::vector<std::string_view> texts = {"aaaabbab", ""};
  trainer.add(texts);
  EXPECT_EQ(trainer.bytes(), 8);
  const BpeDefinition definition = trainer.train(1000, {});
  // (a, a) occurs three times, then (aa, aa) and (b, b) once each: the pair with
  // smaller ids is first.
  ASSERT_EQ(definition.merges.size(), 3U);
  EXPECT_EQ(definition.vocabulary.bytes_of(256), "aa");
  EXPECT_EQ(definition.vocabulary.bytes_of(257), "bb");
  EXPECT_EQ(definition.vocabulary.bytes_of(258), "aaaa");
}

TEST(BpeTrainer, LearnsFromTextThatThePatternDoesNotMatch) {
  kit::BpeTrainer trainer("a", 1);
  const std::vector<std::string_view> texts = {"axyaxy"};
  trainer.add(texts);
  const BpeDefinition definition = trainer.train(1000, {});
  ASSERT_EQ(definition.merges.size(), 1U);
  EXPECT_EQ(definition.vocabulary.bytes_of(256), "xy");
}

TEST(BpeTrainer, RefusesAVocabularyTooSmallForBytes) {
  EXPECT_THAT(message_of<InputError>([] {
                trained(257, 1, {"<|a|>", "<|b|>"});
              }),
              HasSubstr("--vocab-size 257: 256 bytes and 2 special tokens"));
  EXPECT_THAT(message_of<InputError>([] { return kit::BpeTrainer("(", 1).bytes(); }),
              HasSubstr("--pattern"));
}

}  // namespace
}  // namespace muo::data
