#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention_method.h"
#include "runtime/parameter.h"

namespace muo::model {

// Approximate size of the logits that are computed at once, in bytes: no more than the
// unembedding's weights for such a vocabulary.
inline constexpr std::int64_t kHostHeadChunk = std::int64_t{64} << 20;

// A GPT as nanochat builds it, with a switch for each extra. The defaults are the plain GPT of the
// seed articles. The configuration is fixed for a run and saved with it, except for dtype,
// attention, fused_products and head_chunk_bytes.
struct GptConfig {
  std::int64_t vocab_size = 257;
  std::int64_t n_layer = 4;
  std::int64_t n_head = 2;
  std::int64_t n_kv_head = 2;
  std::int64_t n_embd = 256;
  std::int64_t seq_len = 256;        // T in training; also determines the short window
  std::string window_pattern = "L";  // tiled over layers; L: seq_len, S: ceil(seq_len/4/128)*128
  double rope_base = 100000.0;
  float qk_scale = 1.0F;  // after QK norm, on q and on k
  float softcap = 15.0F;
  // nanochat's extras (docs/spec/model.md, "Forward").
  bool value_embeddings = false;  // adds a gated token table to the values of every other layer
  bool smear = false;             // mixes in a part of the previous token's embedding
  bool backout = false;           // subtracts a part of the middle layer's output at the end
  bool resid_lambdas = false;     // learned weight of the residual stream before each block
  bool x0_lambdas = false;        // learned weight of the embedding added before each block
  // Id of the token that begins a document; attention and smear do not cross document boundaries.
  // -1: rows have no documents.
  std::int32_t document_token = -1;
  DType dtype = DType::kF32;       // of activations, and of matrices and embeddings as read
  AttentionMethod attention = {};  // for devices
  bool fused_products = false;     // fuse products with ReLU^2 (kernels/fused_product.h)
  std::int64_t head_chunk_bytes = kHostHeadChunk;  // affects memory, speed and rounding only

  [[nodiscard]] std::int64_t head_dim() const { return n_embd / n_head; }
  [[nodiscard]] std::int64_t padded_vocab() const { return (vocab_size + 63) / 64 * 64; }
  // How many keys before the query layer i attends to; seq_len in the last layer.
  [[nodiscard]] std::int64_t window(std::int64_t layer) const;
  [[nodiscard]] float attention_scale() const;
  // True for every other layer, and always for the last.
  [[nodiscard]] bool has_value_embedding(std::int64_t layer) const {
    return value_embeddings && layer % 2 == (n_layer - 1) % 2;
  }
  // The block after which backout keeps the stream.
  [[nodiscard]] std::int64_t backout_layer() const { return n_layer / 2; }
};

// Channels of the normed input that the gates read.
inline constexpr std::int64_t kValueGateChannels = 12;
inline constexpr std::int64_t kSmearGateChannels = 24;

// Enables all of nanochat's extras, its windows and attention scale; sizes do not change.
void set_nanochat_extras(GptConfig& config);

// Throws InputError that names the option and the nearest valid value.
void check_config(const GptConfig& config);
// Throws InputError that names the options if there are too many `rows` for one pass.
void check_pass(std::int64_t rows, std::int64_t seq_len);

// THE list of parameters. Matrices are (out, in), as torch.nn.Linear.weight. Initial values are in
// nanochat's distributions (docs/spec/model.md, "Initial weights").
std::vector<ParamSpec> gpt_parameters(const GptConfig& config);

// Numbers of elements, in nanochat's groups.
struct ParameterCounts {
  std::int64_t wte = 0;
  std::int64_t value_embeds = 0;
  std::int64_t lm_head = 0;
  std::int64_t transformer_matrices = 0;  // of the blocks, including gates of value embeddings
  std::int64_t scalars = 0;               // lambdas and smear's gate
  [[nodiscard]] std::int64_t total() const {
    return wte + value_embeds + lm_head + transformer_matrices + scalars;
  }
  // The number for scaling laws: without embeddings, which are only looked up.
  [[nodiscard]] std::int64_t scaling() const { return transformer_matrices + lm_head; }
};
ParameterCounts count_parameters(const GptConfig& config);

// nanochat's accounting (docs/spec/model.md, "FLOPs"), for forward and backward: 6 per weight of a
// linear layer and, for attention, 12 heads head_dim min(window, T) per layer.
double flops_per_token(const GptConfig& config);
double attention_flops_per_token(const GptConfig& config);  // attention's part of the above
// Like flops_per_token(), but counts only the keys that a query attends to: its own and the
// window(i) before it.
double causal_flops_per_token(const GptConfig& config);

}  // namespace muo::model
