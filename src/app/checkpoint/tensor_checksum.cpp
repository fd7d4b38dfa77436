#include "app/checkpoint/tensor_checksum.h"

#include <cstring>

namespace muo {
namespace {

template <class Bits>
std::uint64_t sum(std::uint64_t begin, std::span<const std::byte> bytes) {
  constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15;
  std::uint64_t state = begin * kGamma;
  std::uint64_t total = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    state += kGamma;
    std::uint64_t z = state + bits;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    total += z ^ (z >> 31);
  }
  return total;
}

template <class Bits>
bool has_exponent_of_ones(Bits mask, std::span<const std::byte> bytes) {
  bool found = false;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    found |= (bits & mask) == mask;
  }
  return found;
}

}  // namespace

bool all_finite(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::kF32) return !has_exponent_of_ones<std::uint32_t>(0x7F800000, bytes);
  if (dtype == DType::kBF16) return !has_exponent_of_ones<std::uint16_t>(0x7F80, bytes);
  return true;
}

std::uint64_t tensor_checksum(DType dtype, std::int64_t begin, std::span<const std::byte> bytes) {
  const auto first = static_cast<std::uint64_t>(begin);
  switch (size_of(dtype)) {
    case 8:
      return sum<std::uint64_t>(first, bytes);
    case 4:
      return sum<std::uint32_t>(first, bytes);
    case 2:
      return sum<std::uint16_t>(first, bytes);
    default:
      return sum<std::uint8_t>(first, bytes);
  }
}

}  // namespace muo
