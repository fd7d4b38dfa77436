#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y[i] = table[tokens[i]].
struct EmbeddingArgs {
  Tensor y;       // (n, c) out
  Tensor table;   // (v, c)
  Tensor tokens;  // (n) int32, each in [0, v)
};
void embedding(Stream& stream, const EmbeddingArgs& args);

// dtable[v] <- [dtable[v] if accumulate] + sum of dy[i] over tokens[i] == v, in the order of i:
// deterministic. Without accumulate, rows of absent tokens become zero.
struct EmbeddingBackwardArgs {
  Tensor dtable;  // (v, c) out, or in-out if accumulate
  Tensor dy;      // (n, c)
  Tensor tokens;  // (n) int32
  bool accumulate = false;
};
void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace muo
