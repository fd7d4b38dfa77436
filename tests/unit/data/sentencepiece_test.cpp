// Compares SentencePiece models with the Python package's results
// (scripts/golden/make_sentencepiece_golden.py), and tests which models are rejected.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "data/byte_source.h"
#include "data/tokenizer.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/normalization_rules.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

using Ids = std::vector<std::int32_t>;

fs::path golden(const std::string& name) {
  return fs::path(test::source_directory()) / "tests/golden/sentencepiece" / name;
}

// Returns the contents of a model's file, decompressed if necessary.
std::string model_file(const std::string& name) {
  fs::path file = golden(name + ".model");
  if (!fs::exists(file)) file += ".zst";
  const auto source = open_bytes(file);
  std::string out(1 << 20, '\0');
  out.resize(source->read(out));
  return out;
}

SentencePieceTokenizer model(const std::string& name) { return {model_file(name), name}; }

std::vector<json> golden_lines() {
  std::istringstream lines(test::read_file(golden("ids.jsonl")));
  std::vector<json> out;
  for (std::string line; std::getline(lines, line);)
    out.push_back(json::parse(line));
  return out;
}

std::string from_hex(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return out;
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += text;
  return out;
}

TEST(SentencePiece, MatchesTheIdsAndTextsOfThePackage) {
  std::map<std::string, std::unique_ptr<SentencePieceTokenizer>> models;
  std::map<std::string, int> count;
  for (const json& line : golden_lines()) {
    const std::string by = line["by"];
    auto& tokenizer = models[by];
    if (tokenizer == nullptr)
      tokenizer = std::make_unique<SentencePieceTokenizer>(model_file(by), by);
    if (line.contains("times")) {
      std::string digits;
      const Ids ids = encode(*tokenizer, repeated(line["text"], line["times"]));
      for (const std::int32_t id : ids)
        digits += (digits.empty() ? "" : " ") + std::to_string(id);
      EXPECT_EQ(ids.size(), line["count"]) << line;
      EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(digits.data()), digits.size()),
                line["crc32"].get<uLong>())
          << line;
      ++count["long"];
      continue;
    }
    const Ids ids = line["ids"];
    std::string text;
    if (line.contains("text")) text = line["text"];
    if (line.contains("hex")) text = from_hex(line["hex"]);
    if (line.contains("text") || line.contains("hex")) {
      EXPECT_EQ(encode(*tokenizer, text), ids) << line;
      ++count[line.contains("hex") ? "hex" : "text"];
    } else {
      ++count["ids"];
    }
    EXPECT_EQ(decode(*tokenizer, ids), line.value("decoded", text)) << line;
  }
  EXPECT_EQ(models.size(), 8U);
  for (const char* const kind : {"text", "hex", "ids", "long"})
    EXPECT_GT(count[kind], 50) << kind;
}

// For arbitrary ids, streamed output consists of whole characters and adds up to the decoded text.
TEST(SentencePiece, DecodesIdByIdAsAllAtOnce) {
  for (const char* const name : {"llama", "gemma", "t5", "unigram_bytes", "suffix"}) {
    const SentencePieceTokenizer tokenizer = model(name);
    std::mt19937_64 random(3);
    for (int i = 0; i < 300; ++i) {
      Ids ids(1 + random() % 20);
      for (std::int32_t& id : ids)  // low ids are control pieces and bytes
        id = static_cast<std::int32_t>(
            random() % (random() % 2 == 0 ? 260U : static_cast<unsigned>(tokenizer.vocab_size())));
      const auto decoder = tokenizer.text_decoder();
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string shown = decoder->add(id);
        EXPECT_TRUE(is_utf8(shown));
        text += shown;
      }
      EXPECT_EQ(text + decoder->finish(), decode(tokenizer, ids));
    }
  }
}

TEST(SentencePiece, HoldsBackIncompleteCharacters) {
  const SentencePieceTokenizer tokenizer = model("llama");
  const Ids bytes = encode(tokenizer, "\U0001F600");  // ▁ and four byte pieces
  ASSERT_EQ(bytes.size(), 5U);
  const auto decoder = tokenizer.text_decoder();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(decoder->add(bytes[i]), "");
  EXPECT_EQ(decoder->add(bytes[4]), "\U0001F600");
  EXPECT_EQ(decoder->add(bytes[1]), "");
  EXPECT_EQ(decoder->add(bytes[0]), "\uFFFD ");  // no longer at the start, so the space stays
  EXPECT_EQ(decoder->add(bytes[1]), "");
  EXPECT_EQ(decoder->add(bytes[2]), "");
  EXPECT_EQ(decoder->finish(), "\uFFFD\uFFFD");
}

TEST(SentencePiece, EncodesAWholeTextByOneThreadAndDocumentsBySeveral) {
  const SentencePieceTokenizer tokenizer = model("char");
  EXPECT_FALSE(tokenizer.cuts_text());
  const std::string large = repeated("Several threads  would cut\nthis  text. ", 28'000);
  ASSERT_GT(large.size(), std::size_t{1} << 20);  // otherwise it is not encoded in parallel
  const Ids whole = encode(tokenizer, large);
  Ids parallel;
  encode_parallel(tokenizer, large, 4, parallel);
  EXPECT_EQ(parallel, whole);
  std::vector<std::string> texts = {large, "", "a"};
  for (int i = 0; i < 200; ++i)
    texts.push_back(std::to_string(i) + " é中\xFF");
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto documents = encode_documents(tokenizer, views, 4, 7);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Ids expected = i == 0 ? whole : encode(tokenizer, texts[i]);
    expected.insert(expected.begin(), 7);
    ASSERT_EQ(documents[i], expected) << i;
  }
}

TEST(SentencePiece, FindsTheTokenThatStartsDocuments) {
  EXPECT_EQ(find_bos(model("llama")), 1);
  EXPECT_EQ(find_bos(model("gemma")), 2);  // <bos>
  EXPECT_EQ(find_bos(model("t5")), std::nullopt);
  EXPECT_THAT(message_of<InputError>([] { need_bos(model("t5"), "t5.model"); }),
              HasSubstr("t5.model: no special token that starts documents"));
}

TEST(SentencePiece, ControlPiecesAreSpecialAndUserDefinedOnesAreText) {
  const SentencePieceTokenizer tokenizer = model("gemma");
  const std::string text = "a<start_of_turn>b<bos>";
  const Ids plain = encode(tokenizer, text);
  const Ids special = encode_special(tokenizer, text);
  EXPECT_THAT(plain, testing::Not(testing::Contains(2)));
  EXPECT_EQ(special.back(), 2);
  EXPECT_EQ(decode(tokenizer, plain), text);
  EXPECT_EQ(decode(tokenizer, special), "a<start_of_turn>b");  // as in the package
  std::vector<std::string> names;
  for (const SpecialToken& token : tokenizer.special_tokens())
    names.push_back(token.text);
  EXPECT_THAT(names, testing::ElementsAre("<pad>", "<eos>", "<bos>", "<mask>"));
  const Ids turn = encode(tokenizer, "<start_of_turn>");
  ASSERT_EQ(turn.size(), 1U);
  EXPECT_EQ(tokenizer.bytes_of(turn.front()), "<start_of_turn>");
}

TEST(SentencePiece, CountsTheBytesOfItsPieces) {
  const SentencePieceTokenizer tokenizer = model("llama");
  const auto bytes = bytes_of_tokens(tokenizer);
  ASSERT_EQ(std::ssize(bytes), tokenizer.vocab_size());
  EXPECT_EQ(bytes[0], 5);  // " ⁇ "
  EXPECT_EQ(bytes[1], 0);  // <s>
  for (std::int32_t id = 3; id < 259; ++id)
    EXPECT_EQ(tokenizer.bytes_of(id), std::string(1, static_cast<char>(id - 3)));
  // The dummy prefix counts: a text of n bytes of which nothing is lost has n + 1.
  const std::string text = "Tokens of é and \U0001F600  ";
  std::size_t sum = 0;
  for (const std::int32_t id : encode(tokenizer, text))
    sum += static_cast<std::size_t>(bytes[static_cast<std::size_t>(id)]);
  EXPECT_EQ(sum, text.size() + 1);
  EXPECT_EQ(tokenizer.bytes_of(-1), "");
  EXPECT_EQ(tokenizer.bytes_of(static_cast<std::int32_t>(tokenizer.vocab_size())), "");
}

TEST(SentencePiece, IsRecognisedByItsContentsAndKeptUnchanged) {
  const test::TempDir directory;
  const std::string llama = model_file("llama"), gemma = model_file("gemma");
  const fs::path file = directory.write("any/name.txt", llama);
  EXPECT_EQ(open_tokenizer(file)->fingerprint(), model("llama").fingerprint());
  EXPECT_EQ(copy_tokenizer(file).name, "tokenizer.model");
  EXPECT_EQ(copy_tokenizer(file).contents, llama);

  const std::string bpe =
      test::read_file(fs::path(test::source_directory()) / "tests/golden/tokenizer/tokenizer.json");
  directory.write("both/tokenizer.json", bpe);
  EXPECT_EQ(find_tokenizer_in(directory.path() / "both"), directory.path() / "both/tokenizer.json");
  EXPECT_EQ(copy_tokenizer(directory.path() / "both").name, "tokenizer.json");
  directory.write("both/tokenizer.model", "IQ== 0\n");  // Llama 3's has ranks of tiktoken
  EXPECT_EQ(find_tokenizer_in(directory.path() / "both"), directory.path() / "both/tokenizer.json");
  directory.write("both/tokenizer.model", gemma);
  EXPECT_EQ(open_tokenizer(directory.path() / "both")->fingerprint(), model("gemma").fingerprint());
  EXPECT_EQ(find_tokenizer_in(directory.path() / "any"), "");

  for (const char* const other : {"", "\n", "{}", "\n{\n\"a\": 1}", "IQ== 0\n", "\n\x02\n"})
    EXPECT_FALSE(is_sentencepiece_model(other)) << other;
  EXPECT_THAT(
      message_of<InputError>([&] { read_bpe_definition(file); }),
      HasSubstr("name.txt: a SentencePiece model, which is not a byte-level BPE and cannot"));
}

TEST(SentencePiece, RefusesATextThatItsLibraryCannotCount) {
  const SentencePieceTokenizer tokenizer = model("char");
  const std::string text((std::size_t{128} << 20) + 1, 'a');
  EXPECT_THAT(message_of<InputError>([&] { encode(tokenizer, text); }),
              HasSubstr("char: a text of 134217729 bytes: SentencePiece takes 128 MiB at most"));
}

// Protobuf fields: a message or text, and a number.
std::string field(unsigned number, const std::string& bytes) {
  std::string out;
  const auto add = [&](std::size_t value) {
    for (; value >= 0x80; value >>= 7)
      out += static_cast<char>(0x80 | (value & 0x7F));
    out += static_cast<char>(value);
  };
  add(number << 3U | 2U);
  add(bytes.size());
  return out + bytes;
}
std::string field(unsigned number, unsigned value) {  // both below 128
  std::string out;
  if (number >= 16) {
    out += static_cast<char>(0x80 | (number << 3U & 0x7FU));
    out += static_cast<char>(number >> 4U);
  } else {
    out += static_cast<char>(number << 3U);
  }
  return out + static_cast<char>(value);
}
std::string piece(const std::string& text, unsigned type = 1, const std::string& more = "") {
  return field(1, field(1, text) + field(3, type) + more);
}
const std::string kSmall = piece("<unk>", 2) + piece("a");

std::string error_of(const std::string& file) {
  return message_of<InputError>([&] { SentencePieceTokenizer(file, "t.model"); });
}

TEST(SentencePiece, ErrorsNameTheFaultInAModel) {
  EXPECT_EQ(error_of(kSmall), "no exception");
  EXPECT_THAT(error_of(kSmall + "\x0A\x05"), HasSubstr("t.model: a SentencePiece model, but the "
                                                       "file is cut short or damaged"));
  EXPECT_THAT(error_of(kSmall.substr(0, kSmall.size() - 1)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(field(2, field(3, 2U))), HasSubstr("has no pieces"));
  EXPECT_THAT(error_of(kSmall + piece("")), HasSubstr("piece 2 is not UTF-8 of 1 to 4096 bytes"));
  EXPECT_THAT(error_of(kSmall + piece("\xFF")), HasSubstr("piece 2 is not UTF-8"));
  EXPECT_THAT(error_of(kSmall + piece(std::string("b\0c", 3))), HasSubstr("piece 2 is not UTF-8"));
  EXPECT_THAT(error_of(kSmall + piece(std::string(4097, 'b'))), HasSubstr("piece 2 is not UTF-8"));
  EXPECT_EQ(error_of(kSmall + piece(std::string(4096, 'b'))), "no exception");
  EXPECT_THAT(error_of(kSmall + piece("b", 7)), HasSubstr("the type of piece 2 7 is not known"));
  EXPECT_THAT(error_of(kSmall + piece("b", 1, std::string("\x15\x00\x00\xC0\x7F", 5))),
              HasSubstr("the score of piece 2 is not finite"));
  EXPECT_THAT(error_of(kSmall + field(2, field(3, 5U))),
              HasSubstr("its model_type 5 is not known"));
  EXPECT_THAT(error_of(kSmall + field(2, field(3, "x"))), HasSubstr("field 3 has wire type 2"));
  EXPECT_THAT(error_of(kSmall + field(3, 1U)), HasSubstr("field 3 has wire type 0"));
  EXPECT_THAT(error_of(kSmall + field(5, field(2, "rules"))), HasSubstr("denormalization"));
  EXPECT_THAT(error_of(kSmall + field(3, field(2, "rules"))), HasSubstr("normalization rules"));
  EXPECT_THAT(error_of(kSmall + field(2, field(44, "\xFF"))),
              HasSubstr("its unk_surface is not UTF-8"));
  // An error that the library itself reports.
  EXPECT_THAT(error_of(kSmall + piece("a")), AllOf(HasSubstr("libsentencepiece refuses this model"),
                                                   HasSubstr("a is already defined")));
  EXPECT_THAT(error_of(piece("a")), HasSubstr("unk is not defined"));
  EXPECT_THAT(error_of(kSmall + piece("<0x41>", 6)), HasSubstr("byte_fallback"));
  EXPECT_THAT(error_of(kSmall + piece("<0xG1>", 6) + field(2, field(35, 1U))),
              HasSubstr("byte piece <0xG1> is invalid"));

  std::string nested = kSmall;
  for (std::size_t i = 1; i <= 64; ++i)
    nested += piece(std::string(i, 'u'), 4);
  EXPECT_EQ(error_of(nested + piece("v", 4)), "no exception");
  EXPECT_EQ(encode(SentencePieceTokenizer(nested, "t"), std::string(64, 'u')).size(), 2U);
  EXPECT_THAT(error_of(nested + piece(std::string(65, 'u'), 4)),
              HasSubstr("more than 64 user-defined pieces begin with 'u'"));
}

TEST(SentencePiece, FingerprintsDependOnlyOnIds) {
  const auto fingerprint = [](const std::string& file) {
    return SentencePieceTokenizer(file, "t").fingerprint();
  };
  const std::string first = fingerprint(kSmall);
  EXPECT_EQ(first.size(), 16U);
  // Extensions of the format, and the text of an unknown piece, do not matter.
  EXPECT_EQ(fingerprint(kSmall + field(300, "x") + field(2, field(44, "?"))), first);
  std::set<std::string> all = {first};
  const std::vector<std::string> others = {
      kSmall + piece("b"),
      piece("<unk>", 2) + piece("a", 4),
      piece("<unk>", 2) + piece("a", 1, std::string("\x15\x00\x00\x80\x3F", 5)),
      kSmall + field(2, field(3, 2U)),
      kSmall + field(2, field(24, 1U)),
      kSmall + field(2, field(26, 1U)),
      kSmall + field(3, field(3, 0U)),
      kSmall + field(3, field(4, 0U)),
      kSmall + field(3, field(5, 0U)),
      model_file("t5")};
  for (const std::string& other : others)
    all.insert(fingerprint(other));
  EXPECT_EQ(all.size(), 1 + others.size());
}

// A double-array trie with `blocks` blocks of 256 units, and one replacement, "x". Units that are
// not set are values that no path reaches.
struct Rules {
  explicit Rules(std::size_t blocks) : units(256 * blocks, 0x80000000U) {}
  std::vector<std::uint32_t> units;
  std::string texts = std::string("x\0", 2);

  // Makes unit `at` reachable by `byte`, and puts its block of children at `children`.
  void set(std::uint32_t at, std::uint32_t byte, std::uint32_t children, bool has_value) {
    units[at] = byte | (has_value ? 0x100U : 0U) | (at ^ children) << 10U;
  }
  [[nodiscard]] std::string file() const {
    std::string out;
    const auto add = [&](std::uint32_t number) {
      for (int shift = 0; shift < 32; shift += 8)
        out += static_cast<char>(number >> static_cast<unsigned>(shift));
    };
    add(static_cast<std::uint32_t>(4 * units.size()));
    for (const std::uint32_t unit : units)
      add(unit);
    return out + texts;
  }
  [[nodiscard]] std::string error() const {
    return message_of<InputError>([&] { check_normalization_rules(file(), "t.model"); });
  }
};

// The rule "a" -> "x": 'a' leads from the children at 1 to unit 0x60, whose value is unit 0xF0.
Rules one_rule() {
  Rules rules(1);
  rules.set(0, 0, 1, false);
  rules.set(0x60, 'a', 0xF0, true);
  return rules;
}

TEST(NormalizationRules, AreReadAsTheLibraryReadsThem) {
  EXPECT_EQ(one_rule().error(), "no exception");
  const SentencePieceTokenizer tokenizer(
      kSmall + piece("x") + piece("\u2581") + field(3, field(2, one_rule().file())), "t");
  EXPECT_EQ(encode(tokenizer, "aa"), (Ids{3, 2, 2}));
}

TEST(NormalizationRules, RefusesInvalidTries) {
  const auto error = [](const std::function<void(Rules&)>& change) {
    Rules rules = one_rule();
    change(rules);
    return rules.error();
  };
  EXPECT_THAT(error([](Rules& r) { r.set(0x60, 'a', 256, false); }),
              HasSubstr("t.model: normalization rules: unit 96 of the trie points outside of it"));
  EXPECT_THAT(error([](Rules& r) { r.units[0x60] |= 0x200U; }), HasSubstr("points outside"));
  EXPECT_THAT(error([](Rules& r) { r.units[0] = 0xFFFFFC00U; }), HasSubstr("points outside"));
  EXPECT_THAT(error([](Rules& r) { r.set(0x60, 'a', 1, false); }),
              HasSubstr("the trie has a cycle"));
  EXPECT_THAT(error([](Rules& r) { r.units[0xF0] = 'b'; }),
              HasSubstr("unit 96 of the trie has no"));
  EXPECT_THAT(error([](Rules& r) { r.units[0xF0] = 0x80000002U; }),
              HasSubstr("has no replacement"));
  EXPECT_THAT(error([](Rules& r) { r.texts = "x"; }),
              HasSubstr("the last replacement has no terminator"));
  EXPECT_THAT(error([](Rules& r) { r.texts.clear(); }),
              HasSubstr("the trie has 1024 bytes, all rules 1028"));
  EXPECT_THAT(error([](Rules& r) { r.units.pop_back(); }), HasSubstr("the trie has 1020 bytes"));
  EXPECT_THAT(error([](Rules& r) { r.texts.assign(1025, 'x').push_back('\0'); }),
              HasSubstr("a replacement has more than 1024 bytes"));
  for (const std::size_t size : {0U, 4U})
    EXPECT_THAT(message_of<InputError>(
                    [&] { check_normalization_rules(one_rule().file().substr(0, size), "t"); }),
                HasSubstr("too short for the trie's size"));
}

// Rules for "a", "aa", ... up to n letters. The library keeps the matches at one position
// in an array of 32.
TEST(NormalizationRules, MatchAtOnePositionUpToTheLibrarysLimit) {
  const auto nested = [](std::uint32_t n) {
    Rules rules(n + 1);
    rules.set(0, 0, 1, false);
    for (std::uint32_t i = 0, children = 1; i < n; ++i) {
      const std::uint32_t unit = children ^ 'a';
      children = 256 * (i + 1);
      rules.set(unit, 'a', children, true);
    }
    return rules;
  };
  EXPECT_EQ(nested(32).error(), "no exception");
  EXPECT_THAT(nested(33).error(), HasSubstr("more than 32 match at one position"));
}

// "a" and "b" lead to the same children, 40 times: 2^40 keys.
TEST(NormalizationRules, ChildrenOfSeveralParentsAreCheckedOnce) {
  constexpr std::uint32_t kLevels = 40;
  Rules rules(kLevels + 1);
  rules.set(0, 0, 1, false);
  for (std::uint32_t i = 0, children = 1; i < kLevels; ++i) {
    for (const unsigned byte : {'a', 'b'})
      rules.set(children ^ byte, byte, 256 * (i + 1), false);
    children = 256 * (i + 1);
  }
  EXPECT_EQ(rules.error(), "no exception");
}

}  // namespace
}  // namespace muo::data
