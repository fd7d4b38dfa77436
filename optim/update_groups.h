#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_names.h"
#include "runtime/parameter.h"

namespace muo::optim {

enum class UpdateRule : std::uint8_t { kMuon, kAdamW };
constexpr auto names_of(UpdateRule) { return name_list("Muon", "AdamW"); }

struct UpdateGroup {
  UpdateRule rule = UpdateRule::kAdamW;
  int adam_group = 0;  // index into HyperParameters::adam
};

// nanochat's grouping (docs/spec/optimizer.md, "Parameter groups"): Muon updates the matrices of
// the blocks, AdamW everything else.
UpdateGroup update_group(ParamRole role);
// The name of a role's group in logs: "matrices", "lm_head", ...
std::string_view group_name(ParamRole role);

// Parameters of one class share their number formats.
enum class NumberClass : std::uint8_t {
  kMatrix,     // read by GEMMs: matrices of the blocks, and the head
  kEmbedding,  // token and value embeddings
  kScalar,     // lambdas and gates: always fp32, as in nanochat
};
NumberClass number_class(ParamRole role);

}  // namespace muo::optim
