#include "data/tokenizer/tokenizer_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/strict_json.h"
#include "data/tokenizer/nfc.h"

namespace muo::data {
namespace {

using nlohmann::json;

// In the order of SplitBehavior.
constexpr std::array<std::string_view, 5> kBehaviors = {"Isolated", "Removed", "MergedWithPrevious",
                                                        "MergedWithNext", "Contiguous"};

// GPT-2's alphabet of bytes, as UTF-8: bytes that are printable in Latin-1 stand for themselves,
// the others, in order, for U+0100 and the following characters.
std::array<std::string, 256> byte_alphabet() {
  std::array<std::string, 256> out;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const unsigned code = prints ? byte : next++;
    if (code < 0x80)
      out.at(byte) = static_cast<char>(code);
    else
      out.at(byte) = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  }
  return out;
}

std::string to_alphabet(std::string_view bytes) {
  static const std::array<std::string, 256> letters = byte_alphabet();
  std::string out;
  for (const char c : bytes)
    out += letters.at(static_cast<unsigned char>(c));
  return out;
}

// Returns nothing if `text` has a character that does not stand for a byte.
std::optional<std::string> from_alphabet(std::string_view text) {
  static const std::array<int, 0x200> byte_of = [] {
    std::array<int, 0x200> bytes{};
    bytes.fill(-1);
    const std::array<std::string, 256> alphabet = byte_alphabet();
    for (int byte = 0; byte < 256; ++byte) {
      const std::string& c = alphabet.at(static_cast<std::size_t>(byte));
      const auto lead = static_cast<unsigned char>(c[0]);
      const unsigned code =
          c.size() == 1 ? lead : (lead & 0x1FU) << 6 | (static_cast<unsigned char>(c[1]) & 0x3FU);
      bytes.at(code) = byte;
    }
    return bytes;
  }();
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    unsigned code = lead;
    if (lead >= 0xC0 && lead < 0xC8 && i + 1 < text.size())
      code = (lead & 0x1FU) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3FU);
    else if (lead >= 0x80)
      code = 0;  // stands for nothing
    if (byte_of.at(code) < 0) return std::nullopt;
    out += static_cast<char>(byte_of.at(code));
  }
  return out;
}

// Whether occurrences of the two in a text can overlap.
bool overlap(std::string_view left, std::string_view right) {
  for (int turn = 0; turn < 2; ++turn, std::swap(left, right)) {
    if (left.find(right) != std::string_view::npos) return true;
    for (std::size_t size = 1; size < std::min(left.size(), right.size()); ++size)
      if (left.substr(left.size() - size) == right.substr(0, size)) return true;
  }
  return false;
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  BpeDefinition read(std::string_view text) {
    const json file = parse_strict_json(text, source_);
    expect(file.is_object(), "", "not an object");
    read_normalizer(at(file, "normalizer"), "normalizer");
    read_pre_tokenizer(at(file, "pre_tokenizer"), "pre_tokenizer");
    expect(is_byte_level_, "pre_tokenizer",
           "no ByteLevel: only byte-level tokenizers are supported");
    const json& model = at(file, "model");
    expect(model.is_object(), "model", "not an object");
    expect(at(model, "vocab").is_object(), "model.vocab", "missing, or not an object");
    read_added_tokens(at(file, "added_tokens"), at(model, "vocab"));
    read_model(model);
    return std::move(out_);
  }

 private:
  template <class... What>
  [[noreturn]] void fail(std::string_view where, const What&... what) const {
    throw InputError(concat(source_, ": ", where, where.empty() ? "" : ": ", what...));
  }
  void expect(bool holds, std::string_view where, std::string_view what) const {
    if (!holds) fail(where, what);
  }
  static const json& at(const json& object, const char* key) {
    static const json none;
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
  }
  [[nodiscard]] bool flag(const json& object, const char* key, bool otherwise,
                          std::string_view where) const {
    const json& value = at(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) fail(concat(where, '.', key), "neither true nor false");
    return value.get<bool>();
  }
  [[nodiscard]] std::string text(const json& object, const char* key,
                                 std::string_view where) const {
    const json& value = at(object, key);
    if (!value.is_string()) fail(concat(where, '.', key), "missing, or not a string");
    return value.get<std::string>();
  }

  static bool is_empty_text(const json& value) {
    return value.is_string() && value.get_ref<const std::string&>().empty();
  }

  // Calls read(part, where) for each part of a Sequence.
  template <class Read>
  void each_part(const json& sequence, const char* key, const std::string& where,
                 const Read& read) const {
    const json& parts = at(sequence, key);
    expect(parts.is_array(), concat(where, '.', key), "not a list");
    for (std::size_t i = 0; i < parts.size(); ++i)
      read(parts[i], fmt::format("{}.{}[{}]", where, key, i));
  }

  void read_normalizer(const json& normalizer, const std::string& where) {
    if (normalizer.is_null()) return;
    expect(normalizer.is_object(), where, "not an object");
    const std::string type = text(normalizer, "type", where);
    if (type == "Sequence") {
      each_part(normalizer, "normalizers", where,
                [this](const json& part, const std::string& its) { read_normalizer(part, its); });
    } else if (type == "NFC") {
      out_.nfc = true;
    } else {
      fail(where, type, " changes the text, which is not supported: only NFC is");
    }
  }

  void read_pre_tokenizer(const json& part, const std::string& where) {
    expect(part.is_object(), where, "missing, or not an object");
    expect(!is_byte_level_, where, "comes after ByteLevel, which has to be the last");
    const std::string type = text(part, "type", where);
    if (type == "Sequence") {
      each_part(part, "pretokenizers", where, [this](const json& each, const std::string& its) {
        read_pre_tokenizer(each, its);
      });
    } else if (type == "ByteLevel") {
      expect(!flag(part, "add_prefix_space", true, where), where + ".add_prefix_space",
             "true, which changes the text and is not supported");
      if (flag(part, "use_regex", true, where)) out_.splits.push_back(read_split("gpt2", source_));
      expect(!out_.splits.empty(), where, "nothing cuts the text into pieces");
      is_byte_level_ = true;
    } else if (type == "Split") {
      read_split_of(part, where);
    } else if (type == "Digits") {
      out_.splits.push_back(
          {.pattern = flag(part, "individual_digits", false, where) ? R"(\p{N})" : R"(\p{N}+)"});
    } else {
      fail(where, type, " is not supported: only Sequence, Split, Digits and ByteLevel are");
    }
  }

  void read_split_of(const json& part, const std::string& where) {
    Split split;
    const std::string behavior = text(part, "behavior", where);
    const auto* const found = std::find(kBehaviors.begin(), kBehaviors.end(), behavior);
    if (found == kBehaviors.end()) fail(where, "behavior ", behavior, " is not supported");
    split.behavior = static_cast<SplitBehavior>(found - kBehaviors.begin());
    split.invert = flag(part, "invert", false, where);
    const json& pattern = at(part, "pattern");
    expect(pattern.is_object() && pattern.size() == 1, where + ".pattern",
           "neither a Regex nor a String");
    if (pattern.contains("String")) {
      for (const char c : text(pattern, "String", where + ".pattern")) {
        if (std::string_view(R"(\.+*?()|[]{}^$#&-~)").find(c) != std::string_view::npos)
          split.pattern += '\\';
        split.pattern += c;
      }
    } else {
      split.pattern = text(pattern, "Regex", where + ".pattern");
    }
    out_.splits.push_back(std::move(split));
  }

  // Assigns the ids that `tokenizers` assigns, whatever the file says: those of the vocabulary, or
  // consecutive ids from the size of the vocabulary on.
  void read_added_tokens(const json& tokens, const json& vocab) {
    if (tokens.is_null()) return;
    expect(tokens.is_array(), "added_tokens", "not a list");
    auto next = static_cast<std::int32_t>(vocab.size());
    struct Added {
      std::string text;
      bool is_special, is_later;
    };
    std::vector<Added> all;
    std::string beyond, counted;  // a token with an id beyond the vocabulary, and one without an id
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string where = fmt::format("added_tokens[{}]", i);
      expect(tokens[i].is_object(), where, "not an object");
      for (const char* const key : {"lstrip", "rstrip", "single_word"})
        expect(!flag(tokens[i], key, false, where), concat(where, '.', key),
               "true, which is not supported");
      static_cast<void>(id_of(at(tokens[i], "id"), where));
      const std::string content = text(tokens[i], "content", where);
      if (content.empty()) continue;
      const bool is_special = flag(tokens[i], "special", false, where);
      const bool is_later = flag(tokens[i], "normalized", true, where);
      if (!added_.insert(content).second) {
        const auto same = std::ranges::find(all, content, &Added::text);
        if (same->is_special != is_special || same->is_later != is_later)
          fail(where, "'", content, "' occurs twice with different 'special' or 'normalized'");
        continue;
      }
      const auto known = vocab.find(content);
      std::int32_t id = next;
      if (known != vocab.end()) {
        id = id_of(*known, where);
        if (id >= static_cast<std::int64_t>(vocab.size())) beyond = content;
      } else {
        ++next;
        counted = content;
      }
      if (out_.nfc && is_later && (is_special || to_nfc(content) != content))
        fail(concat(where, ".normalized"), "true together with NFC, for a ",
             is_special ? "special token" : "text that NFC changes", ", which is not supported");
      (is_special ? out_.special
       : is_later ? out_.later_literals
                  : out_.literals)
          .push_back({content, id});
      all.push_back({content, is_special, is_later});
    }
    if (!beyond.empty() && !counted.empty())
      fail("added_tokens", "'", counted, "' is not in model.vocab, in which '", beyond,
           "' has an id beyond its size: ids then depend on the version of tokenizers");
    // tokenizers matches special tokens together with other added tokens. Here they are matched
    // first, or not at all.
    for (const Added& special : all)
      for (const Added& other : all)
        if (special.is_special && (special.is_later || !other.is_later) &&
            (!other.is_special || special.is_later != other.is_later) &&
            overlap(special.text, other.text))
          fail("added_tokens", "'", other.text, "' may share bytes with '", special.text,
               "', which is special; this is not supported");
    for (auto* list : {&out_.special, &out_.literals, &out_.later_literals})
      std::ranges::sort(*list, {}, &SpecialToken::id);
  }

  [[nodiscard]] std::int32_t id_of(const json& value, std::string_view where) const {
    constexpr std::int64_t kMaxIds = 1 << 24;
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
        value.get<std::int64_t>() >= kMaxIds)
      fail(where, "the id is not a number from 0 to ", kMaxIds - 1);
    return value.get<std::int32_t>();
  }

  void read_model(const json& model) {
    const json& type = at(model, "type");  // absent in files of 2020
    if (!type.is_null() && type != "BPE")
      fail("model.type", type.dump(), " is not supported: only BPE is");
    expect(at(model, "dropout").is_null() || at(model, "dropout") == 0.0, "model.dropout",
           "not null, which is not supported");
    for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"})
      expect(at(model, key).is_null() || is_empty_text(at(model, key)), concat("model.", key),
             "not empty, which is not supported");
    out_.whole_pieces = flag(model, "ignore_merges", false, "model");
    const json& vocab = at(model, "vocab");
    for (const auto& [token, value] : vocab.items()) {
      const std::int32_t id = id_of(value, concat("model.vocab: token '", token, "'"));
      const std::optional<std::string> bytes = from_alphabet(token);
      if (!bytes || bytes->empty()) continue;  // no text contains it
      // An added token is part of the model only if it is a piece or the result of a merge.
      if (added_.contains(token) && bytes == token && token.size() > 1 && !out_.whole_pieces)
        continue;
      add_token(*bytes, id);
    }
    read_merges(at(model, "merges"), vocab);
  }

  void add_token(const std::string& bytes, std::int32_t id) {
    if (!out_.vocabulary.bytes_of(id).empty()) fail("model.vocab", "id ", id, " occurs twice");
    out_.vocabulary.add(bytes, id);
  }

  // Returns -1 if the token is not in model.vocab.
  std::int32_t merged_id(const std::string& token, const json& vocab) {
    const std::optional<std::string> bytes = from_alphabet(token);
    if (!bytes)
      fail("model.merges", "token '", token, "' has a character that does not stand for a byte");
    if (out_.vocabulary.find(*bytes) < 0 && vocab.contains(token))
      add_token(*bytes, vocab[token].get<std::int32_t>());
    return out_.vocabulary.find(*bytes);
  }

  // Reads ["a b", ...] or [["a", "b"], ...].
  void read_merges(const json& merges, const json& vocab) {
    expect(merges.is_array(), "model.merges", "missing, or not a list");
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto refuse = [&](std::string_view what) {
        fail(fmt::format("model.merges[{}]", i), what);
      };
      std::string left, right;
      if (merges[i].is_string()) {
        const auto& both = merges[i].get_ref<const std::string&>();
        const std::size_t space = both.find(' ');
        if (space == std::string::npos) refuse("not two tokens");
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else if (merges[i].is_array() && merges[i].size() == 2 && merges[i][0].is_string() &&
                 merges[i][1].is_string()) {
        left = merges[i][0].get<std::string>();
        right = merges[i][1].get<std::string>();
      } else {
        refuse("not two tokens");
      }
      const Merge merge{merged_id(left, vocab), merged_id(right, vocab),
                        merged_id(left + right, vocab)};
      if (merge.left < 0 || merge.right < 0 || merge.result < 0)
        refuse("a part, or the result, is not in model.vocab");
      out_.merges.push_back(merge);
    }
  }

  std::string source_;
  BpeDefinition out_;
  std::set<std::string, std::less<>> added_;
  bool is_byte_level_ = false;
};

}  // namespace

BpeDefinition read_tokenizer_json(std::string_view text, std::string_view source) {
  return Reader(source).read(text);
}

std::string write_tokenizer_json(const BpeDefinition& definition) {
  json pieces = json::array();
  for (const Split& split : definition.splits)
    pieces.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", split.pattern}}},
                      {"behavior", kBehaviors.at(static_cast<std::size_t>(split.behavior))},
                      {"invert", split.invert}});
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  pieces.push_back(byte_level);
  std::vector<SpecialToken> tokens;
  for (const auto* list : {&definition.special, &definition.literals, &definition.later_literals})
    tokens.insert(tokens.end(), list->begin(), list->end());
  std::ranges::sort(tokens, {}, &SpecialToken::id);
  const auto is_of = [](const std::vector<SpecialToken>& list, const SpecialToken& token) {
    return std::ranges::find(list, token.id, &SpecialToken::id) != list.end();
  };
  json added = json::array();
  for (const SpecialToken& token : tokens)
    added.push_back({{"id", token.id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", is_of(definition.later_literals, token)},
                     {"special", is_of(definition.special, token)}});
  json vocab = json::object();
  for (std::int32_t id = 0; id < definition.vocabulary.id_count(); ++id)
    if (const std::string_view bytes = definition.vocabulary.bytes_of(id); !bytes.empty())
      vocab.emplace(to_alphabet(bytes), id);
  // Added tokens are also in the vocabulary, unless a reader that assigns consecutive ids from the
  // vocabulary's size on assigns the same ids, or other tokens have these ids as well.
  std::size_t next = vocab.size();
  const bool are_counted = std::ranges::all_of(tokens, [&](const SpecialToken& token) {
    const auto known = vocab.find(token.text);
    return (known == vocab.end() ? json(next++) : *known) == token.id;
  });
  const bool is_shared = std::ranges::any_of(tokens, [&](const SpecialToken& token) {
    const std::string_view bytes = definition.vocabulary.bytes_of(token.id);
    return !bytes.empty() && bytes != token.text;
  });
  if (!are_counted && !is_shared)
    for (const SpecialToken& token : tokens)
      if (definition.vocabulary.bytes_of(token.id).empty()) vocab.emplace(token.text, token.id);
  json merges = json::array();
  for (const Merge& merge : definition.merges)
    merges.push_back(concat(to_alphabet(definition.vocabulary.bytes_of(merge.left)), ' ',
                            to_alphabet(definition.vocabulary.bytes_of(merge.right))));
  const json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", definition.nfc ? json{{"type", "NFC"}} : json()},
                     {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", pieces}}},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", definition.whole_pieces},
                       {"vocab", vocab},
                       {"merges", merges}}}};
  return file.dump(1) + "\n";
}

std::string with_document_start(std::string_view text, const SpecialToken& bos) {
  using Json = nlohmann::ordered_json;  // keeps the order of large vocabularies
  const Json start = {{"SpecialToken", {{"id", bos.text}, {"type_id", 0}}}};
  const auto sequence = [](const char* id) {
    return Json{{"Sequence", {{"id", id}, {"type_id", 0}}}};
  };
  Json file = Json::parse(text);
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {start, sequence("A")}},
      {"pair", {start, sequence("A"), sequence("B")}},
      {"special_tokens",
       {{bos.text, {{"id", bos.text}, {"ids", {bos.id}}, {"tokens", {bos.text}}}}}}};
  return file.dump(1) + "\n";
}

}  // namespace muo::data
