#pragma once

#include <cstddef>
#include <vector>

#include "model/gpt_config.h"

namespace muo::model {

// Indices into gpt_parameters(), by which the model accesses its weights; kAbsent for
// disabled extras.
inline constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
struct BlockParams {
  std::size_t value_embed = kAbsent, ve_gate = kAbsent;
  std::size_t c_q, c_k, c_v, attn_proj, c_fc, mlp_proj;
};
struct GptParams {
  std::size_t wte = kAbsent;
  std::size_t smear_gate = kAbsent, smear_lambda = kAbsent;
  std::size_t resid_lambdas = kAbsent, x0_lambdas = kAbsent;  // (n_layer)
  std::vector<BlockParams> blocks;
  std::size_t backout_lambda = kAbsent;
  std::size_t lm_head = kAbsent;
};
GptParams index_parameters(const GptConfig& config);

}  // namespace muo::model
