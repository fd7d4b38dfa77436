#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "runtime/device.h"

namespace muo {

// Memory that ranks have in common, where they can all address it: one piece for all of them. They
// order their uses of it themselves. A rank's n-th call gets the n-th piece, so all have to ask for
// the same ones in the same order. Pieces live as long as this.
class CommonMemory {
 public:
  explicit CommonMemory(int world) : taken_(static_cast<std::size_t>(world), 0) {}

  // From `device`, of the first rank that asks. Throws Error if ranks ask for different sizes.
  [[nodiscard]] std::byte* take(Device& device, std::int64_t bytes, std::string_view what);

 private:
  std::mutex mutex_;
  std::vector<std::size_t> taken_;  // by rank: how many
  std::vector<std::unique_ptr<Buffer>> pieces_;
};

}  // namespace muo
