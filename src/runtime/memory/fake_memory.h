#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device.h"

namespace muo {

// Addresses without memory, for tracing. They are outside the range that x86-64 and arm64 can map,
// so that an access faults and none equals a real address. Each owner has a range of 16 TiB.
enum class FakeOwner : std::uint8_t { kDevice, kArena };

inline std::uintptr_t fake_base(int device, FakeOwner owner) {
  const auto index = static_cast<std::uintptr_t>(device) * 2 + (owner == FakeOwner::kArena);
  return (std::uintptr_t{1} << 62) + (index << 44);
}

// Returns the next `bytes` aligned bytes from `next`, and leaves a gap behind them, so that an
// access past the end touches no other tensor.
inline std::byte* take_fake(std::uintptr_t& next, std::int64_t bytes) {
  constexpr auto kStep = static_cast<std::uintptr_t>(kAlignment);
  auto* data = reinterpret_cast<std::byte*>(next);  // NOLINT(performance-no-int-to-ptr)
  next += (static_cast<std::uintptr_t>(bytes) + 2 * kStep - 1) / kStep * kStep;
  return data;
}

}  // namespace muo
