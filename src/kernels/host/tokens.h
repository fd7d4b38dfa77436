#pragma once

#include <cstdint>

#include "runtime/tensor.h"

namespace muo::host {

// Token `i`; an id outside [0, vocab) is an Error, as it would read beyond a table.
inline std::int64_t token_at(const Tensor& tokens, std::int64_t i, std::int64_t vocab) {
  const std::int32_t token = tokens.as<std::int32_t>()[i];
  MUO_CHECK(0 <= token && token < vocab, "embedding: token ", token, " at position ", i,
            " is outside [0, ", vocab, ")");
  return token;
}

}  // namespace muo::host
