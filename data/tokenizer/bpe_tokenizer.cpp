#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "data/tokenizer/fingerprint.h"
#include "data/tokenizer/nfc.h"

namespace muo::data {
namespace {

std::string fingerprint_of(const BpeDefinition& definition) {
  Fingerprint out;
  const auto add_id = [&](std::int32_t id) { out.add(static_cast<std::uint32_t>(id)); };
  out.add(definition.splits.size());
  for (const Split& split : definition.splits) {
    const std::string_view by_pcre2 = pcre2_pattern(split);
    out.add(by_pcre2);
    if (!by_pcre2.empty()) continue;
    out.add(split.pattern);
    out.add(static_cast<std::uint64_t>(split.behavior));
    out.add(split.invert ? 1U : 0U);
  }
  // Added tokens that are also in the vocabulary matter only to pieces that equal their text.
  std::set<std::string_view> added;
  if (definition.whole_pieces)
    for (const auto* tokens :
         {&definition.special, &definition.literals, &definition.later_literals})
      for (const SpecialToken& token : *tokens)
        added.insert(token.text);
  const auto bytes_of = [&](std::int32_t id) {
    const std::string_view bytes = definition.vocabulary.bytes_of(id);
    return added.contains(bytes) ? std::string_view() : bytes;
  };
  std::int32_t count = definition.vocabulary.id_count();
  while (count > 0 && bytes_of(count - 1).empty())
    --count;
  for (std::int32_t id = 0; id < count; ++id)
    out.add(bytes_of(id));
  out.add(definition.merges.size());
  for (const Merge& merge : definition.merges) {
    add_id(merge.left);
    add_id(merge.right);
  }
  out.add(definition.whole_pieces ? 1U : 0U);
  const auto add_tokens = [&](const std::vector<SpecialToken>& tokens) {
    out.add(tokens.size());
    for (const SpecialToken& token : tokens) {
      out.add(token.text);
      add_id(token.id);
    }
  };
  add_tokens(definition.special);
  add_tokens(definition.literals);
  if (definition.nfc) out.add("NFC");
  if (!definition.later_literals.empty()) add_tokens(definition.later_literals);
  return out.text();
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeDefinition definition, std::string_view source)
    : special_(definition.special),
      literals_(definition.literals),
      nfc_(definition.nfc),
      later_literals_(definition.later_literals),
      fingerprint_(fingerprint_of(definition)),
      splitter_(definition.splits, source),
      encoding_(std::move(definition.vocabulary), definition.merges, definition.whole_pieces,
                source),
      vocab_size_(encoding_.vocabulary().id_count()) {
  std::map<std::int32_t, std::string_view> by_id;
  std::map<std::string_view, std::int32_t> by_text;
  for (const auto tokens : added_tokens()) {
    for (const auto& [text, id] : tokens) {
      const std::string_view bytes = encoding_.vocabulary().bytes_of(id);
      const bool is_special = tokens.data() == special_.data();
      if (text.empty() || id < 0 || !by_id.emplace(id, text).second ||
          !by_text.emplace(text, id).second || (is_special && !bytes.empty() && bytes != text))
        throw InputError(concat(source, ": added token '", text, "' of id ", id,
                                ": its text is empty, or another token has its text or id"));
      vocab_size_ = std::max(vocab_size_, std::int64_t{id} + 1);
    }
  }
}

std::size_t BpeTokenizer::encode(std::string_view text, std::size_t begin, std::size_t end,
                                 std::vector<std::int32_t>& ids) const {
  const auto encode_piece = [&](std::string_view piece) { encoding_.encode(piece, ids); };
  if (cuts_text()) return splitter_.split(text, begin, end, encode_piece);
  // Literals are matched first. The text between them is normalized and split as if it
  // were a whole text.
  const auto encode_literal = [&](const SpecialToken& literal) { ids.push_back(literal.id); };
  const auto cut = [&](std::string_view part) {
    splitter_.split(part, 0, part.size(), encode_piece);
  };
  const auto normalize = [&](std::string_view part) {
    later_literals_.cut(nfc_ ? to_nfc(part) : part, cut, encode_literal);
  };
  literals_.cut(text.substr(begin), normalize, encode_literal);
  return text.size();
}

std::string_view BpeTokenizer::bytes_of(std::int32_t id) const {
  const std::string_view bytes = encoding_.vocabulary().bytes_of(id);
  if (!bytes.empty()) return bytes;
  for (const auto tokens : added_tokens())
    for (const SpecialToken& token : tokens)
      if (token.id == id) return token.text;
  return {};
}

}  // namespace muo::data
