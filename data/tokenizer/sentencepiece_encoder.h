#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// Interface to libsentencepiece. As few runs need it, libmuograph_sentencepiece.so links it and is
// loaded with the first model (decision sentencepiece-is-a-plug-in).
class SentencePieceEncoder {
 public:
  SentencePieceEncoder() = default;
  virtual ~SentencePieceEncoder() = default;
  SentencePieceEncoder(const SentencePieceEncoder&) = delete;
  SentencePieceEncoder& operator=(const SentencePieceEncoder&) = delete;

  // Appends the ids of `text`. Thread-safe. Returns an empty string, or one line that says why it
  // failed; `ids` are then unchanged.
  virtual std::string encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
};

// Type of the function that the plug-in exports as kSentencePieceEntry: makes an encoder from the
// contents of a model's file, which must be one that read_sentencepiece_model() accepts. Returns
// null on failure; `error` then says why, in one line.
using SentencePieceEntry = SentencePieceEncoder* (*)(std::string_view model, std::string* error);
inline constexpr const char* kSentencePieceEntry = "muograph_open_sentencepiece";

}  // namespace muo::data
