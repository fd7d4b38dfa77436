#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gpt_config.h"
#include "runtime/memory/arena.h"

namespace muo::model {

// Keys (after rotary and norm) and values (gated) of computed positions, for `rows` rows of up to
// config.seq_len positions. They persist between passes, but only as long as no other graph runs:
// between training steps, their memory is that of activations.
struct KvCache {
  struct Layer {
    Tensor keys, values;  // (rows, seq_len, kv_heads, h)
  };
  KvCache(const GptConfig& config, std::int64_t rows, const std::string& prefix, Arena& arena);

  std::vector<Layer> layers;
};

// How a pass uses a cache. Without `positions`, rows of the pass begin at position 0 and attend
// only to themselves. With `positions`, each row is a single position, which attends to the cache.
struct CacheUse {
  const KvCache& cache;
  Tensor slots = {};      // (b) int32: cache row for each row of the pass; absent: row i
  Tensor positions = {};  // (b) int32
  Tensor starts = {};     // (b) int32, with documents and positions: start of the row's document
};

}  // namespace muo::model
