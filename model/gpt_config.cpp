#include "model/gpt_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/gate.h"
#include "model/parameters.h"

namespace muo::model {
namespace {

void require(bool ok, const std::string& message) {
  if (!ok) throw InputError(message);
}

std::int64_t short_window(std::int64_t seq_len) {
  constexpr std::int64_t kTile = 128;  // tile of flash-attention; nanochat rounds up to it
  return (seq_len + 4 * kTile - 1) / (4 * kTile) * kTile;
}

}  // namespace

std::int64_t GptConfig::window(std::int64_t layer) const {
  if (layer == n_layer - 1) return seq_len;
  const char kind = window_pattern.at(static_cast<std::size_t>(layer) % window_pattern.size());
  return kind == 'S' ? short_window(seq_len) : seq_len;
}

float GptConfig::attention_scale() const {
  return 1.0F / std::sqrt(static_cast<float>(head_dim()));
}

void set_nanochat_extras(GptConfig& config) {
  config.value_embeddings = config.smear = config.backout = true;
  config.resid_lambdas = config.x0_lambdas = true;
  config.window_pattern = "SSSL";
  config.qk_scale = 1.2F;
}

void check_config(const GptConfig& c) {
  constexpr std::int64_t kMax = std::int64_t{1} << 31;  // keeps every product below in 64 bits
  const auto sized = [&](const char* option, std::int64_t value) {
    require(value >= 1 && value < kMax,
            concat(option, " is ", value, ": give a value from 1 to ", kMax - 1));
  };
  sized("vocabulary size", c.vocab_size);
  sized("--n-layer", c.n_layer);
  sized("--n-head", c.n_head);
  sized("--n-kv-head", c.n_kv_head);
  sized("--n-embd", c.n_embd);
  sized("--max-seq-len", c.seq_len);
  require(c.seq_len >= 2, concat("--max-seq-len is ", c.seq_len, ": give at least 2"));
  require(c.n_embd % c.n_head == 0,
          concat("--n-embd ", c.n_embd, " does not divide into --n-head ", c.n_head,
                 " heads: give --n-embd ", (c.n_embd + c.n_head - 1) / c.n_head * c.n_head));
  require(
      c.head_dim() % 2 == 0,
      concat("head size ", c.head_dim(), " (--n-embd / --n-head) is odd: rotary positions need ",
             "an even size, as --n-embd ", (c.head_dim() + 1) * c.n_head, " gives"));
  require(c.head_dim() <= 256,
          concat("head size ", c.head_dim(), " (--n-embd / --n-head) is over 256: give --n-head ",
                 (c.n_embd + 255) / 256, " or more"));
  require(c.n_head % c.n_kv_head == 0,
          concat("--n-head ", c.n_head, " is not a multiple of ", "--n-kv-head ", c.n_kv_head,
                 ": give a divisor of ", c.n_head));
  require(!c.window_pattern.empty() &&
              std::all_of(c.window_pattern.begin(), c.window_pattern.end(),
                          [](char kind) { return kind == 'L' || kind == 'S'; }),
          concat("--window-pattern is '", c.window_pattern,
                 "': give letters S (short) and L (long), for instance SSSL"));
  require(c.softcap >= 0, concat("--softcap is ", c.softcap, ": give 0 (off) or more"));
  require(!c.value_embeddings || c.n_embd >= kValueGateChannels,
          concat("--n-embd ", c.n_embd, " is too narrow for value embeddings, whose gates read ",
                 kValueGateChannels, " channels: give --value-embeddings off"));
  constexpr std::int64_t kMaxGates = kMaxGateWeights / kValueGateChannels;
  std::int64_t fitting = std::min(c.n_head, kMaxGates);
  while (c.n_head % fitting != 0)
    --fitting;
  require(!c.value_embeddings || c.n_kv_head <= kMaxGates,
          concat("--n-kv-head ", c.n_kv_head, ": value embeddings have gates for at most ",
                 kMaxGates, " heads: give --n-kv-head ", fitting, ", or --value-embeddings off"));
  require(!c.smear || c.n_embd >= kSmearGateChannels,
          concat("--n-embd ", c.n_embd, " is too narrow for smear, whose gate reads ",
                 kSmearGateChannels, " channels: give --smear off"));
  require(c.document_token >= -1 && c.document_token < c.vocab_size,
          concat("the token that begins documents is ", c.document_token,
                 ": give an id of the vocabulary, from 0 to ", c.vocab_size - 1,
                 ", or -1 for rows without documents"));
  require(c.dtype == DType::kF32 || c.dtype == DType::kBF16,
          concat("dtype ", name_of(c.dtype), " is not supported: give fp32 or bf16"));
  require(c.rope_base > 1 && c.qk_scale > 0,
          "rope_base must be greater than 1, qk_scale greater than 0");
}

void check_pass(std::int64_t rows, std::int64_t seq_len) {
  // Limit of the BLAS interface.
  constexpr std::int64_t kMaxTokens = std::numeric_limits<int>::max();
  require(rows <= kMaxTokens / seq_len,
          concat("--device-batch-size ", rows, ": rows of ", seq_len,
                 " tokens (--max-seq-len) exceed 2^31 tokens: give --device-batch-size ",
                 kMaxTokens / seq_len, " or less"));
}

ParameterCounts count_parameters(const GptConfig& c) {
  ParameterCounts counts;
  for (const ParamSpec& spec : gpt_parameters(c)) {
    const auto group = [&]() -> std::int64_t& {
      switch (spec.role) {
        case ParamRole::kMatrix:
          return counts.transformer_matrices;
        case ParamRole::kEmbedding:
          return counts.wte;
        case ParamRole::kUnembedding:
          return counts.lm_head;
        case ParamRole::kValueEmbedding:
          return counts.value_embeds;
        case ParamRole::kResidLambda:
        case ParamRole::kX0Lambda:
        case ParamRole::kSmear:
          break;
      }
      return counts.scalars;
    };
    group() += spec.shape.numel();
  }
  return counts;
}

double flops_per_token(const GptConfig& c) {
  const std::int64_t linear = count_parameters(c).scaling() + (c.smear ? kSmearGateChannels : 0);
  return 6.0 * static_cast<double>(linear) + attention_flops_per_token(c);
}

double attention_flops_per_token(const GptConfig& c) {
  double flops = 0;
  for (std::int64_t i = 0; i < c.n_layer; ++i)
    flops += 12.0 * static_cast<double>(c.n_embd * std::min(c.window(i), c.seq_len));
  return flops;
}

double causal_flops_per_token(const GptConfig& c) {
  double seen = 0;  // keys per query, all layers
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    // Query q attends to min(q, w) + 1 keys: a triangle up to w, then a band.
    const auto t = static_cast<double>(c.seq_len);
    const auto w = static_cast<double>(std::min(c.window(i), c.seq_len - 1));
    seen += (w * (w + 1) / 2 + (t - w) * (w + 1)) / t;
  }
  return flops_per_token(c) - attention_flops_per_token(c) +
         12.0 * static_cast<double>(c.n_embd) * seen;
}

}  // namespace muo::model
