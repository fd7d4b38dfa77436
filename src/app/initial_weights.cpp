#include "app/initial_weights.h"

#include <algorithm>
#include <vector>

namespace muo {

void initialize_weights(const RankContext& rank, const RunConfig& config,
                        std::span<const ParamSpec> params, ShardedStep& update) {
  std::vector<float> values;
  for (const StateEntry& entry : update.state()) {
    const auto spec = std::ranges::find(params, entry.name, &ParamSpec::name);
    if (spec == params.end()) continue;
    const std::int64_t count = entry.values.numel();
    values.resize(static_cast<std::size_t>(count));
    init_parameter(config.model, *spec, config.options.seed, entry.begin, count, values.data());
    rank.compute.copy(entry.values, host_tensor(values.data(), {count}));
    rank.wait(rank.compute);  // `values` is used again
  }
  update.publish();
  rank.wait(rank.compute);
}

}  // namespace muo
