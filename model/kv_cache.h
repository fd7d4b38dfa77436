#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gpt_config.h"
#include "runtime/memory/arena.h"

namespace muo::model {

// Keys (after rotary and norm) and values (gated) of positions that a pass has computed, for `rows`
// rows of up to config.seq_len positions. They stay from one pass to the next, but not while other
// graphs run: between steps of training they take the memory of its activations.
struct KvCache {
  struct Layer {
    Tensor keys, values;  // (rows, seq_len, kv_heads, h)
  };
  KvCache(const GptConfig& config, std::int64_t rows, const std::string& prefix, Arena& arena);

  std::vector<Layer> layers;
};

// What a pass does with a cache. Without positions, rows of the pass begin at position 0 and attend
// to themselves. With them, a row of the pass is one position, which attends to the cache.
struct CacheUse {
  const KvCache& cache;
  Tensor slots = {};      // (b) int32: where the pass' rows are in the cache; absent: i
  Tensor positions = {};  // (b) int32
  Tensor starts = {};  // (b) int32, with positions where there are documents: where theirs begins
};

}  // namespace muo::model
