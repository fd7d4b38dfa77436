#pragma once

#include <functional>
#include <span>

#include "model/activations.h"
#include "model/kv_cache.h"
#include "model/parameters.h"
#include "runtime/stream.h"

namespace muo::model {

// Weights of a pass, by parameter index. Callbacks may be empty.
struct WeightSource {
  std::span<const Tensor> weights;
  std::function<void(std::size_t param)> before_use = {};  // e.g. to wait for its gather
  // Call this before enqueuing work that reads the weight.
  [[nodiscard]] const Tensor& use(std::size_t param) const {
    if (before_use) before_use(param);
    return weights[param];
  }
};

// Destination of the gradients of weights, by parameter index. The first micro-step writes them,
// later micro-steps add to them; the last one announces each gradient when it is final.
// Callbacks may be empty.
struct GradientSink {
  std::span<const Tensor> gradients;  // logical shapes
  bool accumulate = false;
  std::function<void(std::size_t param)> before_write = {};  // e.g. to wait for its slot
  std::function<void(std::size_t param)> ready = {};
  std::function<void()> after_losses = {};  // called after the head's work has been enqueued
  // Call this before enqueuing work that writes the gradient.
  [[nodiscard]] const Tensor& target(std::size_t param) const {
    if (before_write) before_write(param);
    return gradients[param];
  }
  void announce(std::size_t param) const {
    if (ready) ready(param);
  }
};

// Tables of cos and sin, (>= t, h/2), shared by all layers.
struct RotaryTables {
  Tensor cos, sin;
};

// Inputs and parameters of one transformer block.
struct BlockContext {
  const GptConfig& config;
  const GptParams& params;
  const WeightSource& weights;
  const BlockActivations& act;
  const RotaryTables& rotary;
  Tensor tokens;        // (n) int32
  Tensor token_groups;  // groups of `tokens`; only for the backward pass
  Tensor starts;        // (b, t) int32, starts of documents; absent without documents
  Tensor x0;            // (n, c)
  Tensor workspace;
  std::int64_t layer = 0;
  const CacheUse* cached = nullptr;  // forward passes only; may be null

  [[nodiscard]] bool decodes() const { return cached != nullptr && cached->positions; }
};

// act.x <- the block's output. `from`, (n, c), is the previous block's output (x0 for the first
// block), and may be act.x itself:
//   x = resid_lambda from + x0_lambda x0;   x += attn(norm(x));   x += mlp(norm(x)).
void block_forward(Stream& stream, const BlockContext& block, Tensor from);

// Recomputes into block.act (an entry of Activations::backward_blocks) what the backward pass of
// this layer needs and the forward pass did not keep, bit by bit as the forward pass computed it.
// act.x is scratch.
void block_recompute(Stream& stream, const BlockContext& block, Tensor from, Recomputed what);

// flow.dx is the gradient of the block's output on entry, and that of `from` on return. The last
// block writes flow.dx0, the others add to it.
void block_backward(Stream& stream, const BlockContext& block, Tensor from,
                    const GradientActivations& flow, const GradientSink& sink);

// dW <- [dW +] dy^T x, then announces it to the sink. dy (n, out), x (n, in).
void weight_gradient(Stream& stream, std::size_t param, Tensor dy, Tensor x,
                     const GradientSink& sink);

}  // namespace muo::model
