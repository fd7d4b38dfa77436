#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// libsentencepiece, which few runs need: libmuograph_sentencepiece.so links it, and is loaded with
// the first model (decision sentencepiece-is-a-plug-in).
class SentencePieceEncoder {
 public:
  SentencePieceEncoder() = default;
  virtual ~SentencePieceEncoder() = default;
  SentencePieceEncoder(const SentencePieceEncoder&) = delete;
  SentencePieceEncoder& operator=(const SentencePieceEncoder&) = delete;

  // Appends the ids of a text; of several threads at once. Empty, or one line: why not, and then
  // `ids` are as they were.
  virtual std::string encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
};

// What the library exports under kSentencePieceEntry: an encoder by the model that is all of a
// file. Null: `error` says in one line why not. The model has to be one that
// read_sentencepiece_model() takes.
using SentencePieceEntry = SentencePieceEncoder* (*)(std::string_view model, std::string* error);
inline constexpr const char* kSentencePieceEntry = "muograph_open_sentencepiece";

}  // namespace muo::data
