#pragma once

#include <cstddef>
#include <cstdint>

namespace muo::data {

// Hash of a pair of ids, for open addressing: every bit depends on all bits of both ids.
inline std::size_t hash_of_pair(std::int32_t left, std::int32_t right) {
  const std::uint64_t pair =
      std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  const std::uint64_t hash = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15U;
  return hash >> 24;
}

}  // namespace muo::data
