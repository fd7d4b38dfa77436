#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

// Attention of a decode step: keys and values of earlier positions are in a cache, and only one
// query of each row is new. Where a step is depends on device memory alone, so that one captured
// step serves all positions. Kernels check that positions and slots are within the cache.
namespace muo {

// keys[slots[i], positions[i] + j] <- k[i, j], and values from v alike.
struct CacheAppendArgs {
  Tensor keys;            // (rows, capacity, kv_heads, h) in-out
  Tensor values;          // as keys
  Tensor k;               // (b, t, kv_heads, h), b <= rows, t <= capacity
  Tensor v;               // as k
  Tensor slots = {};      // (b) int32, all different; absent: i
  Tensor positions = {};  // (b) int32; absent: 0
};
void cache_append(Stream& stream, const CacheAppendArgs& args);

// attention() of one query for each row of the cache: that of row i is at positions[i], and sees
// the keys of at most `window` positions before, from starts[i] on, and its own, which must all be
// there. Softmax in fp32, of sums in fp32; fp32 or bf16, q, keys, values and out the same.
// Probabilities are not rounded.
struct DecodeAttentionArgs {
  Tensor out;          // (b, heads, h) out
  Tensor q;            // (b, heads, h)
  Tensor keys;         // (>= b, capacity, kv_heads, h)
  Tensor values;       // as keys
  Tensor positions;    // (b) int32
  Tensor workspace;    // (decode_attention_workspace(...) or more) fp32, scratch
  Tensor starts = {};  // (b) int32, in [0, positions[i]]: of its document; absent: 0
  std::int64_t window = 0;
  float scale = 1.0F;
};
void decode_attention(Stream& stream, const DecodeAttentionArgs& args);

// Keys that one block of a device's kernel takes.
inline constexpr std::int64_t kDecodeChunk = 128;

// Elements of scratch, on host and device alike.
std::int64_t decode_attention_workspace(std::int64_t b, std::int64_t heads, std::int64_t capacity,
                                        std::int64_t h);

}  // namespace muo
