#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

// Attention of a decode step. Keys and values of earlier positions are in a cache, and each row has
// one new query. Kernels read the positions from device memory, so one captured step serves all
// positions; they check that positions and slots are within the cache.
namespace muo {

// keys[slots[i], positions[i] + j] <- k[i, j]; likewise values <- v.
struct CacheAppendArgs {
  Tensor keys;            // (rows, capacity, kv_heads, h) in-out
  Tensor values;          // as keys
  Tensor k;               // (b, t, kv_heads, h), b <= rows, t <= capacity
  Tensor v;               // as k
  Tensor slots = {};      // (b) int32, distinct; absent: i
  Tensor positions = {};  // (b) int32; absent: 0
};
void cache_append(Stream& stream, const CacheAppendArgs& args);

// attention() with one query for each of the first b rows of the cache. The query of row i is at
// positions[i]. It sees its own key and the keys of up to `window` positions before it, but none
// before starts[i]; all of them must be in the cache. Scores and softmax are in fp32, and
// probabilities are not rounded. q, keys, values and out have one dtype, fp32 or bf16.
struct DecodeAttentionArgs {
  Tensor out;          // (b, heads, h) out
  Tensor q;            // (b, heads, h)
  Tensor keys;         // (>= b, capacity, kv_heads, h)
  Tensor values;       // as keys
  Tensor positions;    // (b) int32
  Tensor workspace;    // (decode_attention_workspace(...) or more) fp32, scratch
  Tensor starts = {};  // (b) int32, in [0, positions[i]]: start of the document; absent: 0
  std::int64_t window = 0;
  float scale = 1.0F;
};
void decode_attention(Stream& stream, const DecodeAttentionArgs& args);

// Keys per thread block of a device's kernel.
inline constexpr std::int64_t kDecodeChunk = 128;

// Scratch in fp32 elements that is enough on the host and on a device.
std::int64_t decode_attention_workspace(std::int64_t b, std::int64_t heads, std::int64_t capacity,
                                        std::int64_t h);

}  // namespace muo
