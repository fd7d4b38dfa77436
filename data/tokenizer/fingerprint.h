#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace muo::data {

// 64-bit FNV-1a over texts and numbers. Each text is followed by its size, so that different
// sequences of texts do not collide because their concatenations are equal.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text)
      add_byte(static_cast<unsigned char>(c));
    add(text.size());
  }
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      add_byte(static_cast<unsigned char>(number >> shift));
  }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001B3U; }
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

}  // namespace muo::data
