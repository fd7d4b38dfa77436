#pragma once

#include <cstddef>
#include <vector>

#include "model/gpt_config.h"

namespace muo {

// Indices into gpt_parameters(): how the model's code finds its weights.
struct BlockParams {
  std::size_t c_q, c_k, c_v, attn_proj, c_fc, mlp_proj;
};
struct GptParams {
  std::size_t wte = 0;
  std::vector<BlockParams> blocks;
  std::size_t lm_head = 0;
};
GptParams index_parameters(const GptConfig& config);

}  // namespace muo
