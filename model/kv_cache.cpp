#include "model/kv_cache.h"

#include <string>

namespace muo::model {

KvCache::KvCache(const GptConfig& config, std::int64_t rows, const std::string& prefix,
                 Arena& arena) {
  for (std::int64_t i = 0; i < config.n_layer; ++i) {
    const auto make = [&](const char* name) {
      return arena.tensor({.name = prefix + "h." + std::to_string(i) + name,
                           .shape = {rows, config.seq_len, config.n_kv_head, config.head_dim()},
                           .dtype = config.dtype,
                           .category = MemoryCategory::kCache,
                           .lifespan = Lifespan::kSeries});
    };
    const Tensor keys = make(".keys");
    layers.push_back({.keys = keys, .values = make(".values")});
  }
}

}  // namespace muo::model
