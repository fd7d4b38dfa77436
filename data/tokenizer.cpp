#include "data/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/threads.h"
#include "data/token_data.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tiktoken_file.h"
#include "data/tokenizer/token_finder.h"
#include "data/tokenizer/tokenizer_json.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = 1 << 18;  // bytes of text per task of a thread
constexpr std::size_t kLargeText = 4 * kChunk;

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      bytes_[i] = static_cast<char>(i);
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return kByteVocab; }
  std::size_t encode(std::string_view text, std::size_t begin, std::size_t end,
                     std::vector<std::int32_t>& ids) const override {
    const std::size_t size = ids.size();
    ids.resize(size + end - begin);
    std::transform(text.begin() + static_cast<std::ptrdiff_t>(begin),
                   text.begin() + static_cast<std::ptrdiff_t>(end),
                   ids.begin() + static_cast<std::ptrdiff_t>(size),
                   [](char c) { return std::int32_t{static_cast<unsigned char>(c)}; });
    return end;
  }
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const override {
    if (id == kBosToken) return special_.front().text;
    if (id < 0 || id >= kByteVocab) return {};
    return {&bytes_[static_cast<std::size_t>(id)], 1};
  }
  [[nodiscard]] std::span<const SpecialToken> special_tokens() const override { return special_; }
  [[nodiscard]] std::string fingerprint() const override { return "byte"; }

 private:
  std::array<char, 256> bytes_{};
  std::array<SpecialToken, 1> special_{{{"<|bos|>", kBosToken}}};
};

class BytesDecoder final : public TextDecoder {
 public:
  explicit BytesDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string add(std::int32_t id) override { return std::string(tokenizer_.bytes_of(id)); }
  std::string finish() override { return {}; }

 private:
  const Tokenizer& tokenizer_;
};

// A BPE without merges: every text becomes its bytes, whatever the splits are.
BpeDefinition byte_definition() {
  const ByteTokenizer bytes;
  BpeDefinition definition;
  definition.splits = {read_split("gpt2", "byte")};
  for (std::int32_t id = 0; id < kBosToken; ++id)
    definition.vocabulary.add(bytes.bytes_of(id), id);
  definition.special.assign(bytes.special_tokens().begin(), bytes.special_tokens().end());
  return definition;
}

fs::path find_tokenizer_file(const fs::path& name) {
  std::error_code none;
  fs::path file = name;
  if (fs::is_directory(name, none)) {
    file = find_tokenizer_in(name);
    if (file.empty()) file = name / "tokenizer.json";
  }
  if (!fs::exists(file, none))
    throw InputError(concat("--tokenizer ", file.native(),
                            ": no such file; give byte, a tokenizer.json, a SentencePiece model or "
                            "ranks of tiktoken"));
  return file;
}

bool is_json(const FileBytes& contents) {
  const std::string_view text = contents.text();
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

}  // namespace

BpeDefinition read_bpe_definition(const fs::path& name, std::string_view pattern,
                                  const std::vector<SpecialToken>& special) {
  const fs::path file = find_tokenizer_file(name);
  const FileBytes contents(file);
  if (is_sentencepiece_model(contents.text()))
    throw InputError(
        concat(file.native(),
               ": a SentencePiece model, which is not a byte-level BPE and cannot become "
               "a tokenizer.json; give it to --tokenizer unchanged"));
  if (!is_json(contents))
    return read_tiktoken_file(contents.text(), file.native(), pattern, special);
  if (!pattern.empty() || !special.empty())
    throw InputError(concat(file.native(), ": --pattern and --special are for ranks of tiktoken"));
  return read_tokenizer_json(contents.text(), file.native());
}

std::unique_ptr<const Tokenizer> open_tokenizer(const fs::path& name) {
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  const fs::path file = find_tokenizer_file(name);
  if (const FileBytes contents(file); is_sentencepiece_model(contents.text()))
    return std::make_unique<SentencePieceTokenizer>(contents.text(), file.native());
  return std::make_unique<BpeTokenizer>(read_bpe_definition(name), name.native());
}

TokenizerCopy copy_tokenizer(const fs::path& name) {
  if (name == "byte")
    return {.name = "tokenizer.json", .contents = write_tokenizer_json(byte_definition())};
  const FileBytes contents(find_tokenizer_file(name));
  if (is_sentencepiece_model(contents.text()))
    return {.name = "tokenizer.model", .contents = std::string(contents.text())};
  return {.name = "tokenizer.json",
          .contents = is_json(contents) ? std::string(contents.text())
                                        : write_tokenizer_json(read_bpe_definition(name))};
}

fs::path find_tokenizer_in(const fs::path& folder) {
  fs::path model = folder / "tokenizer.model", json = folder / "tokenizer.json";
  if (fs::is_regular_file(model) && is_sentencepiece_model(FileBytes(model).text())) return model;
  if (!fs::is_regular_file(json)) json.clear();
  return json;
}

std::unique_ptr<TextDecoder> Tokenizer::text_decoder() const {
  return std::make_unique<BytesDecoder>(*this);
}

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, 0, text.size(), ids);
  return ids;
}

void encode_parallel(const Tokenizer& tokenizer, std::string_view text, int threads,
                     std::vector<std::int32_t>& ids) {
  struct Chunk {
    std::size_t begin = 0, end = 0;  // the range of text that `ids` encode
    std::vector<std::int32_t> ids;
  };
  if (threads < 2 || text.size() < 2 * kChunk || !tokenizer.cuts_text()) {
    tokenizer.encode(text, 0, text.size(), ids);
    return;
  }
  // Nearly every tokenizer cuts text between a letter and a space.
  std::vector<Chunk> chunks;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t next = std::min(at + kChunk, text.size());
    while (next < text.size() && !(text[next] == ' ' && text[next - 1] >= 'a' &&
                                   text[next - 1] <= 'z' && next < at + 2 * kChunk))
      ++next;
    chunks.push_back({.begin = at, .end = next, .ids = {}});
    at = next;
  }
  parallel_for(threads, chunks.size(), [&](std::size_t i) {
    Chunk& chunk = chunks[i];
    chunk.end = tokenizer.encode(text, chunk.begin, chunk.end, chunk.ids);
  });
  std::size_t at = 0;  // `ids` encode the text up to here
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    Chunk& chunk = chunks[c];
    const std::size_t end = c + 1 < chunks.size() ? chunks[c + 1].begin : text.size();
    if (chunk.begin == at) {
      ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
      at = chunk.end;
    } else if (at < end) {  // a token of the previous chunk reaches into this one
      at = tokenizer.encode(text, at, end, ids);
    }
    chunk.ids = {};
  }
}

std::vector<std::vector<std::int32_t>> encode_documents(const Tokenizer& tokenizer,
                                                        std::span<const std::string_view> documents,
                                                        int threads, std::int32_t bos) {
  std::vector<std::vector<std::int32_t>> out(documents.size(), {bos});
  const auto is_large = [&](std::size_t i) {
    return documents[i].size() >= kLargeText && tokenizer.cuts_text();
  };
  for (std::size_t i = 0; i < documents.size(); ++i)
    if (is_large(i)) encode_parallel(tokenizer, documents[i], threads, out[i]);
  parallel_for(threads, documents.size(), [&](std::size_t i) {
    if (!is_large(i)) tokenizer.encode(documents[i], 0, documents[i].size(), out[i]);
  });
  return out;
}

std::vector<std::int32_t> encode_special(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  TokenFinder(tokenizer.special_tokens())
      .cut(
          text,
          [&](std::string_view between) { tokenizer.encode(between, 0, between.size(), ids); },
          [&](const SpecialToken& token) { ids.push_back(token.id); });
  return ids;
}

std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const std::unique_ptr<TextDecoder> decoder = tokenizer.text_decoder();
  std::string text;
  for (const std::int32_t id : ids)
    text += decoder->add(id);
  return text + decoder->finish();
}

std::optional<std::int32_t> find_bos(const Tokenizer& tokenizer) {
  if (const auto said = tokenizer.bos()) return said;
  for (const std::string_view name : {"<|bos|>", "<|begin_of_text|>", "<s>", "<|endoftext|>"})
    for (const SpecialToken& token : tokenizer.special_tokens())
      if (token.text == name) return token.id;
  return std::nullopt;
}

std::int32_t need_bos(const Tokenizer& tokenizer, const fs::path& name) {
  if (const auto bos = find_bos(tokenizer)) return *bos;
  throw InputError(concat(name.native(),
                          ": no special token that starts documents (<|bos|>, "
                          "<|begin_of_text|>, <s> or <|endoftext|>); give a tokenizer with one"));
}

std::vector<std::int32_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < bytes.size(); ++id)
    bytes[id] = static_cast<std::int32_t>(tokenizer.bytes_of(static_cast<std::int32_t>(id)).size());
  for (const SpecialToken& token : tokenizer.special_tokens())
    bytes[static_cast<std::size_t>(token.id)] = 0;
  return bytes;
}

}  // namespace muo::data
