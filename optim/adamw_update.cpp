#include "optim/adamw_update.h"

#include "kernels/adamw.h"
#include "runtime/profile_range.h"

namespace muo::optim {

AdamWUpdate::AdamWUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params,
                         Tensor scalars, Arena& arena)
    : BucketUpdate(tensors, params, scalars),
      m_(state_tensor(".adam_m", bucket().state_dtype, MemoryCategory::kAdamState, arena)),
      v_(state_tensor(".adam_v", bucket().state_dtype, MemoryCategory::kAdamState, arena)) {}

void AdamWUpdate::commit(Stream& update) const {
  const ProfileRange phase(ProfileKind::kPhase, "commit ", bucket().name);
  for (const CommitRange& each : commit_ranges_)
    adamw(update, {.weight = tensors_.master(each.range),
                   .replica = tensors_.committed_replica(each.range),
                   .m = ranges().state.slice(m_, each.range),
                   .v = ranges().state.slice(v_, each.range),
                   .grad = tensors_.reduced(each.range),
                   .scalars = scalars_,
                   .group = each.adam_group,
                   .rounding = each.rounding,
                   .squares = squares_of(each)});
}

}  // namespace muo::optim
