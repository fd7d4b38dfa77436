#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace muo::data {

// Iterates over the fields of a protobuf message (protobuf.dev/programming-guides/encoding).
// Nothing is copied: `bytes` points into the message.
class ProtobufReader {
 public:
  enum Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  struct Field {
    std::uint32_t number = 0;
    Wire wire = kVarint;
    std::uint64_t value = 0;  // for numbers
    std::string_view bytes;   // for texts and messages
  };

  explicit ProtobufReader(std::string_view message) : left_(message) {}

  // Reads the next field. Returns false at the end and if the message is malformed; in the latter
  // case, ok() is false.
  bool next(Field& field) {
    if (left_.empty() || !ok_) return false;
    std::uint64_t key = 0;
    ok_ = read_varint(key) && key >> 3U != 0 && key <= 0xFFFFFFFFU;
    if (!ok_) return false;
    field = {static_cast<std::uint32_t>(key >> 3U), static_cast<Wire>(key & 7U), 0, {}};
    switch (field.wire) {
      case kVarint:
        ok_ = read_varint(field.value);
        break;
      case kFixed64:
        ok_ = read_fixed(8, field.value);
        break;
      case kFixed32:
        ok_ = read_fixed(4, field.value);
        break;
      case kBytes:
        ok_ = read_varint(field.value) && field.value <= left_.size();
        if (!ok_) break;
        field.bytes = left_.substr(0, field.value);
        left_.remove_prefix(field.value);
        break;
      default:
        ok_ = false;  // groups, which are obsolete
    }
    return ok_;
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  bool read_varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool read_fixed(std::size_t size, std::uint64_t& value) {
    if (left_.size() < size) return false;
    value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8U | static_cast<unsigned char>(left_[i]);
    left_.remove_prefix(size);
    return true;
  }

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace muo::data
