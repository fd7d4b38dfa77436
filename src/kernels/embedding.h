#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y[i] = table[tokens[i]].
struct EmbeddingArgs {
  Tensor y;       // (n, c) out, dtype of the table: fp32 or bf16
  Tensor table;   // (v, c)
  Tensor tokens;  // (n) int32, each in [0, v)
};
void embedding(Stream& stream, const EmbeddingArgs& args);

// The positions of each token of a vocabulary, for embedding_backward of every table that these
// tokens look into. Their form is the backend's own.
struct GroupTokensArgs {
  Tensor groups;  // token_groups_size(n, vocab) out, int32
  Tensor tokens;  // (n) int32, each in [0, vocab)
  std::int64_t vocab = 0;
};
void group_tokens(Stream& stream, const GroupTokensArgs& args);
constexpr std::int64_t token_groups_size(std::int64_t n, std::int64_t vocab) {
  return vocab + 1 + n;
}

// dtable[v] <- [dtable[v] if accumulate] + sum of dy[i] over tokens[i] == v, in the order of i:
// deterministic. With `scale`, column group k of dy[i] counts scale[i, k] times. Without
// accumulate, rows of absent tokens become zero. A sum, with what it is added to, is one of fp32;
// of a dtable of bf16 it is rounded once, to nearest, at its end.
struct EmbeddingBackwardArgs {
  Tensor dtable;      // (v, c) fp32 or bf16 out, or in-out if accumulate
  Tensor dy;          // (n, c) fp32 or bf16
  Tensor tokens;      // (n) int32
  Tensor groups;      // of group_tokens, of the same tokens and v
  Tensor scale = {};  // (n, groups) fp32, groups divides c
  bool accumulate = false;
};
void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace muo
