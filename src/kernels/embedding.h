#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y[i] = table[tokens[i]].
struct EmbeddingArgs {
  Tensor y;       // (n, c) out, the table's dtype: fp32 or bf16
  Tensor table;   // (v, c)
  Tensor tokens;  // (n) int32, each in [0, v)
};
void embedding(Stream& stream, const EmbeddingArgs& args);

// Groups positions by token, for embedding_backward of every table that these tokens index. The
// layout of `groups` is private to each backend.
struct GroupTokensArgs {
  Tensor groups;  // token_groups_size(n, vocab) out, int32
  Tensor tokens;  // (n) int32, each in [0, vocab)
  std::int64_t vocab = 0;
};
void group_tokens(Stream& stream, const GroupTokensArgs& args);
constexpr std::int64_t token_groups_size(std::int64_t n, std::int64_t vocab) {
  return vocab + 1 + n;
}

// dtable[v] <- [dtable[v] if accumulate] + sum of dy[i] over all i with tokens[i] == v. Terms
// are added in the order of i, so the result is deterministic. If `scale` is given, column group
// k of dy[i] is multiplied by scale[i, k]. Without accumulate, rows of absent tokens become
// zero. The sum, including the old dtable[v], is in fp32; for a bf16 dtable it is rounded once,
// to nearest, at the end.
struct EmbeddingBackwardArgs {
  Tensor dtable;      // (v, c) fp32 or bf16 out, or in-out if accumulate
  Tensor dy;          // (n, c) fp32 or bf16
  Tensor tokens;      // (n) int32
  Tensor groups;      // output of group_tokens for the same tokens and v
  Tensor scale = {};  // (n, groups) fp32, groups divides c
  bool accumulate = false;
};
void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace muo
