#pragma once

#include <cstdint>

namespace muo::simd {

inline constexpr std::int64_t kLanes = 16;

// The lanes that a load or store accesses: all, or the first `count`, 0 < count < kLanes.
struct AllLanes {};
struct FirstLanes {
  std::int64_t count;
};

// Calls body(i, lanes) for i = 0, 16, 32, ... below n; only the last call may get FirstLanes.
template <class Body>
inline void for_lanes(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body(i, AllLanes{});
  if (i < n) body(i, FirstLanes{n - i});
}

}  // namespace muo::simd
