#include "graphs/initial_weights.h"

#include <algorithm>
#include <memory>

#include "base/threads.h"
#include "model/gpt_config.h"

namespace muo {

void draw_parameter(const ParamSpec& spec, std::uint64_t seed, std::int64_t begin,
                    std::int64_t count, float* values, int threads) {
  on_threads(threads, count, [&](std::int64_t from, std::int64_t to) {
    init_parameter(spec, seed, begin + from, to - from, values + from);
  });
}

void initialize_weights(const RankContext& rank, std::uint64_t seed,
                        std::span<const ParamSpec> params, ShardedStep& update) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 21;  // 8 MiB
  const auto values = std::make_unique_for_overwrite<float[]>(kPiece);
  const int threads = cores_per_rank(rank.world);
  for (const StateEntry& entry : update.state()) {
    const auto spec = std::ranges::find(params, entry.name, &ParamSpec::name);
    if (spec == params.end()) continue;
    for (std::int64_t at = 0; at < entry.values.numel(); at += kPiece) {
      const std::int64_t count = std::min(kPiece, entry.values.numel() - at);
      draw_parameter(*spec, seed, entry.begin + at, count, values.get(), threads);
      rank.compute.copy(entry.values.elements(at, count), host_tensor(values.get(), {count}));
      rank.wait(rank.compute);  // `values` is used again
    }
  }
  update.publish();
  rank.wait(rank.compute);
}

}  // namespace muo
