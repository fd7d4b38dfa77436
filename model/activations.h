#pragma once

#include <vector>

#include "model/gpt_config.h"
#include "runtime/arena.h"

namespace muo {

// THE list of activations. Rows are (batch, position) pairs: n = b * t. All are kStep tensors: the
// captured graph tells the memory plan how long each lives, so nothing here declares a lifetime.

struct BlockActivations {
  Tensor attn_in, attn_rstd;  // (n, c), (n)           normed input of attention
  Tensor q, k, v;             // (b, t, heads, h)      after rotary and norm (q, k)
  Tensor q_rstd, k_rstd;      // (b, t, heads)
  Tensor attn_out, lse;       // (b, t, heads, h), (b, heads, t)
  Tensor mlp_in, mlp_rstd;    // (n, c), (n)
  Tensor hidden;              // (n, 4 c)              c_fc's output
  Tensor hidden_squared;      // (n, 4 c)              relu(hidden)^2
};

struct HeadActivations {
  Tensor x, rstd;  // (n, c), (n)  normed input of lm_head
  Tensor logits;   // (chunk, padded vocab)
  Tensor losses;   // (n)
};

// Gradients that flow, one of each: blocks use them one after another.
struct GradientActivations {
  Tensor dx;          // (n, c) of the residual stream
  Tensor dnormed;     // (n, c)
  Tensor dq, dk, dv;  // as q, k, v
  Tensor dattn_out;   // as attn_out
  Tensor dhidden;     // (n, 4 c)
};

struct Activations {
  Tensor x;          // (n, c) residual stream, updated in place
  Tensor x0, rstd0;  // (n, c), (n)  normed embedding
  std::vector<BlockActivations> blocks;
  HeadActivations head;
  GradientActivations gradients;  // absent without backward
  Tensor workspace;               // attention's scratch

  Activations(const GptConfig& config, std::int64_t b, std::int64_t t, bool backward,
              const std::string& prefix, Arena& arena);
};

// Rows of the batch whose logits exist at once: about 16 Mi elements, so that the chunk stays in
// the last-level cache and the head's weight gradient is not re-read too often.
std::int64_t head_chunk_rows(const GptConfig& config, std::int64_t rows);

}  // namespace muo
