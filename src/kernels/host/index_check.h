#pragma once

#include <cstdint>

#include "runtime/tensor.h"

namespace muo::host {

// Returns entry i of `indices`, e.g. a token. Throws Error if it is outside [lowest, bound),
// because it would index beyond a table; `what` names the entry in the message.
inline std::int64_t index_at(const Tensor& indices, std::int64_t i, const char* what,
                             std::int64_t lowest, std::int64_t bound) {
  const std::int32_t value = indices.as<std::int32_t>()[i];
  MUO_CHECK(lowest <= value && value < bound, what, " ", value, " at position ", i, " is outside [",
            lowest, ", ", bound, ")");
  return value;
}

}  // namespace muo::host
