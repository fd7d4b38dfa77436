#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/parameter.h"

namespace muo {

// The plain GPT of the seed articles; every field is fixed for a run and saved with it.
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

  [[nodiscard]] std::int64_t head_dim() const { return n_embd / n_head; }
  [[nodiscard]] std::int64_t padded_vocab() const { return (vocab_size + 63) / 64 * 64; }
  // Keys left of the query that layer i sees; the last layer always sees seq_len.
  [[nodiscard]] std::int64_t window(std::int64_t layer) const;
};

// Throws InputError naming the option and the nearest feasible value.
void check_config(const GptConfig& config);

// THE list of parameters. Matrices are (out, in), as torch.nn.Linear.weight.
std::vector<ParamSpec> gpt_parameters(const GptConfig& config);

// Element `index` ranges of the initial weights: a function of (seed, name, element) only, in
// nanochat's distributions (spec/model 2.22-2.25). Fills values[i] with element begin + i.
void init_parameter(const GptConfig& config, const ParamSpec& spec, std::uint64_t seed,
                    std::int64_t begin, std::int64_t count, float* values);

// nanochat's accounting (spec/model 2.34): 6 per weight of a linear layer plus
// 12 heads head_dim min(window, T) per layer.
double flops_per_token(const GptConfig& config);

}  // namespace muo
