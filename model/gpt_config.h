#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention_method.h"
#include "runtime/parameter.h"

namespace muo::model {

// Bytes of logits that exist at once, about: no more than the weights of such a vocabulary.
inline constexpr std::int64_t kHostHeadChunk = std::int64_t{64} << 20;

// A GPT as nanochat builds it, every extra a switch. The defaults are the plain GPT of the seed
// articles. Fixed for a run and, but for dtype, attention, fused_products and head_chunk_bytes,
// saved with it.
struct GptConfig {
  std::int64_t vocab_size = 257;
  std::int64_t n_layer = 4;
  std::int64_t n_head = 2;
  std::int64_t n_kv_head = 2;
  std::int64_t n_embd = 256;
  std::int64_t seq_len = 256;        // T of training, sets the short window
  std::string window_pattern = "L";  // tiled over layers; L: seq_len, S: ceil(seq_len/4/128)*128
  double rope_base = 100000.0;
  float qk_scale = 1.0F;  // after QK norm, on q and on k
  float softcap = 15.0F;
  // nanochat's extras (docs/spec/model.md, "Forward").
  bool value_embeddings = false;  // gated token table added to the values of every other layer
  bool smear = false;             // mixes a part of the previous token's embedding in
  bool backout = false;           // subtracts a part of the middle layer's output at the end
  bool resid_lambdas = false;     // learned weight of the residual stream before each block
  bool x0_lambdas = false;        // learned weight of the embedding added before each block
  // The id that begins a document, within which attention and smear then stay; -1: rows are one.
  std::int32_t document_token = -1;
  DType dtype = DType::kF32;  // of activations, of matrices and embeddings as forward reads them
  AttentionMethod attention = {};                  // of devices
  bool fused_products = false;                     // with ReLU^2 (kernels/fused_product.h)
  std::int64_t head_chunk_bytes = kHostHeadChunk;  // changes memory, speed and rounding only

  [[nodiscard]] std::int64_t head_dim() const { return n_embd / n_head; }
  [[nodiscard]] std::int64_t padded_vocab() const { return (vocab_size + 63) / 64 * 64; }
  // Keys left of the query that layer i sees; the last layer always sees seq_len.
  [[nodiscard]] std::int64_t window(std::int64_t layer) const;
  [[nodiscard]] float attention_scale() const;
  // Every other layer, always the last.
  [[nodiscard]] bool has_value_embedding(std::int64_t layer) const {
    return value_embeddings && layer % 2 == (n_layer - 1) % 2;
  }
  // After which block the stream is kept for backout.
  [[nodiscard]] std::int64_t backout_layer() const { return n_layer / 2; }
};

inline constexpr std::int64_t kValueGateChannels = 12;  // of the normed input, read by the gates
inline constexpr std::int64_t kSmearGateChannels = 24;

// All of nanochat's extras, its windows and attention scale; sizes stay.
void set_nanochat_extras(GptConfig& config);

// Throws InputError naming the option and the nearest feasible value.
void check_config(const GptConfig& config);
// Throws InputError naming the options if so many rows are more than one pass computes.
void check_pass(std::int64_t rows, std::int64_t seq_len);

// THE list of parameters. Matrices are (out, in), as torch.nn.Linear.weight. Initial values are in
// nanochat's distributions (docs/spec/model.md, "Initial weights").
std::vector<ParamSpec> gpt_parameters(const GptConfig& config);

// Elements, in nanochat's groups.
struct ParameterCounts {
  std::int64_t wte = 0;
  std::int64_t value_embeds = 0;
  std::int64_t lm_head = 0;
  std::int64_t transformer_matrices = 0;  // of the blocks, gates of value embeddings included
  std::int64_t scalars = 0;               // lambdas and smear's gate
  [[nodiscard]] std::int64_t total() const {
    return wte + value_embeds + lm_head + transformer_matrices + scalars;
  }
  // What scaling laws count: embeddings only look up.
  [[nodiscard]] std::int64_t scaling() const { return transformer_matrices + lm_head; }
};
ParameterCounts count_parameters(const GptConfig& config);

// nanochat's accounting (docs/spec/model.md, "FLOPs"), forward and backward: 6 per weight of a
// linear layer, and for attention 12 heads head_dim min(window, T) per layer.
double flops_per_token(const GptConfig& config);
double attention_flops_per_token(const GptConfig& config);  // the part of attention in it
// The same, counting only keys that a query of a row of seq_len sees: itself and window(i) before.
double causal_flops_per_token(const GptConfig& config);

}  // namespace muo::model
