#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Maximum number of weights of a gate operation, whose gradients are summed in fp64 on the stack.
inline constexpr std::int64_t kMaxGateWeights = 4096;

// nanochat's value embeddings (gpt.py, CausalSelfAttention; after ResFormer, Zhou et al. 2024):
//   gates[i, k] = 3 sigmoid(x[i, 0:g] . weight[k]);   v[i, k] += gates[i, k] table[tokens[i], k]
// for key-value head k of h elements. x is the normed input of attention. All tensors except the
// gates have one dtype, fp32 or bf16; arithmetic is fp32.
struct ValueEmbeddingArgs {
  Tensor v;       // (n, kv_heads h) in-out
  Tensor gates;   // (n, kv_heads) out, fp32
  Tensor x;       // (n, c), c >= g
  Tensor weight;  // (kv_heads, g)
  Tensor table;   // (vocab, kv_heads h)
  Tensor tokens;  // (n) int32, each in [0, vocab)
};
void value_embedding(Stream& stream, const ValueEmbeddingArgs& args);

// Gradients through the gates: of the weight, and of x, the latter added to the first g channels of
// dx. The gradient of the table is embedding_backward of dv with `scale` = gates; the gradient of
// the old v is dv.
struct ValueEmbeddingBackwardArgs {
  Tensor dx;       // (n, c) in-out
  Tensor dweight;  // (kv_heads, g) out, or in-out if accumulate: summed in fp64 in a fixed order,
                   // rounded to fp32 and, if dweight is bf16, once more
  Tensor dv;       // (n, kv_heads h)
  Tensor gates;    // (n, kv_heads), fp32, of the forward
  Tensor x;
  Tensor weight;
  Tensor table;
  Tensor tokens;
  bool accumulate = false;
};
void value_embedding_backward(Stream& stream, const ValueEmbeddingBackwardArgs& args);

// nanochat's smear (gpt.py, GPT.forward): each position adds a gated part of the previous one.
//   gates[b, t] = sigmoid(x[b, t, 0:g] . weight)
//   y[b, t] = x[b, t] + lambda gates[b, t] x[b, t-1],   y[b, 0] = x[b, 0]
// If `previous` is given, it is used as x[b, -1] in rows whose entry of `positions` is not 0. If
// `starts` is given, a position that begins a document (is its own start) adds nothing either.
// weight and lambda are fp32.
struct SmearArgs {
  Tensor y;               // (b, t, c) out
  Tensor gates;           // (b, t) out, fp32; 0 where nothing is added
  Tensor x;               // (b, t, c), c >= g
  Tensor weight;          // (1, g)
  Tensor lambda;          // (1)
  Tensor previous = {};   // (b, c)
  Tensor positions = {};  // (b) int32: position of x[b, 0]; given with previous
  Tensor starts = {};     // (b, t) int32: position of the document's start (documents.h)
};
void smear(Stream& stream, const SmearArgs& args);

// `starts` is not needed: positions that added nothing have gate 0, and hence no gradient.
struct SmearBackwardArgs {
  Tensor dx;       // (b, t, c) out
  Tensor dweight;  // (1, g) fp32 out, or in-out if accumulate; summed in a fixed order
  Tensor dlambda;  // (1) likewise
  Tensor dy;       // (b, t, c)
  Tensor x;        // (b, t, c)
  Tensor gates;    // (b, t)
  Tensor weight;
  Tensor lambda;
  bool accumulate = false;
};
void smear_backward(Stream& stream, const SmearBackwardArgs& args);

}  // namespace muo
