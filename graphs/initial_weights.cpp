#include "graphs/initial_weights.h"

#include <algorithm>

#include "kernels/draw.h"

namespace muo::graphs {

void initialize_weights(const RankContext& rank, std::uint64_t seed,
                        std::span<const ParamSpec> params, optim::ShardedStep& update) {
  for (const StateEntry& entry : update.state()) {
    const auto spec = std::ranges::find(params, entry.name, &ParamSpec::name);
    if (spec == params.end()) continue;  // optimizer state
    draw(rank.compute, {.y = entry.values,
                        .upper = entry.upper,
                        .random = {seed, spec->name},
                        .init = spec->init,
                        .begin = entry.begin,
                        .count = spec->shape.numel()});
  }
  update.publish();
  rank.wait(rank.compute);
}

}  // namespace muo::graphs
