#include "app/train/text_codec.h"

#include "data/token_data.h"

namespace muo {

TextCodec byte_codec() {
  return {.encode =
              [](std::string_view text) {
                std::vector<std::int32_t> tokens;
                for (const char c : text)
                  tokens.push_back(static_cast<unsigned char>(c));
                return tokens;
              },
          .bytes_of =
              [](std::int32_t token) {
                return token < kBosToken ? std::string(1, static_cast<char>(token)) : std::string();
              },
          .bos = kBosToken};
}

}  // namespace muo
