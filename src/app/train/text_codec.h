#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muo {

// Between text and tokens: all that sampling knows of a tokenizer.
struct TextCodec {
  std::function<std::vector<std::int32_t>(std::string_view)> encode;
  // The bytes that a token stands for, which may be a part of a character; none for tokens that are
  // no text.
  std::function<std::string(std::int32_t)> bytes_of;
  std::int32_t bos = 0;  // begins every document, and so ends the one before
};

// The byte tokenizer's (data/token_data.h).
TextCodec byte_codec();

}  // namespace muo
