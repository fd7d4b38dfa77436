#include "kernels/decode_attention.h"

#include <algorithm>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

// Counts only the part of the cache that is written.
Cost cost(const CacheAppendArgs& args) {
  return {.bytes = 4.0 * static_cast<double>(args.k.bytes())};
}
// An upper bound, reached with a full cache.
Cost cost(const DecodeAttentionArgs& args) {
  const Shape& q = args.q.shape;
  const std::int64_t keys = std::min(args.window + 1, args.keys.shape[1]);
  const std::int64_t row = args.keys.shape[2] * q[2] * size_of(args.q.dtype);
  return {.bytes = 2.0 * static_cast<double>(q[0] * keys * row + args.q.bytes())};
}

Operation<CacheAppendArgs> append(
    "cache_append", +[](const CacheAppendArgs& args) { return cost(args); });
Operation<DecodeAttentionArgs> attend(
    "decode_attention", +[](const DecodeAttentionArgs& args) { return cost(args); });

constexpr std::int64_t kMaxHead = 256;

}  // namespace

std::int64_t decode_attention_workspace(std::int64_t b, std::int64_t heads, std::int64_t capacity,
                                        std::int64_t h) {
  const std::int64_t chunks = (capacity + kDecodeChunk - 1) / kDecodeChunk;
  // Device: maximum, sum and weighted values of each chunk. Host: a score for each key.
  return b * heads * std::max(chunks * (h + 2), capacity);
}

void cache_append(Stream& stream, const CacheAppendArgs& args) {
  ArgumentCheck check("cache_append");
  check.fp32_or_bf16("keys", args.keys, 4, "(rows, capacity, kv_heads, h)");
  const Shape& cache = args.keys.shape;
  check.tensor("values", args.values, cache, args.keys.dtype);
  check.rank("k", args.k, 4, "(b, t, kv_heads, h)", args.keys.dtype);
  const std::int64_t b = args.k.shape[0], t = args.k.shape[1];
  check.that(
      b <= cache[0] && t <= cache[1],
      concat("k is ", args.k.shape.text(), ", more than the cache ", cache.text(), " holds"));
  check.tensor("k", args.k, {b, t, cache[2], cache[3]}, args.keys.dtype);
  check.tensor("v", args.v, args.k.shape, args.keys.dtype);
  if (args.slots) check.tensor("slots", args.slots, {b}, DType::kI32);
  if (args.positions) check.tensor("positions", args.positions, {b}, DType::kI32);
  check.no_overlap({{"keys", args.keys}, {"values", args.values}}, {{"k", args.k}, {"v", args.v}});
  append.submit(stream, args,
                {.writes = {},
                 .updates = {args.keys, args.values},
                 .reads = {args.k, args.v, args.slots, args.positions}});
}

void decode_attention(Stream& stream, const DecodeAttentionArgs& args) {
  ArgumentCheck check("decode_attention");
  check.fp32_or_bf16("q", args.q, 3, "(b, heads, h)");
  const DType dtype = args.q.dtype;
  check.rank("keys", args.keys, 4, "(rows, capacity, kv_heads, h)", dtype);
  const std::int64_t b = args.q.shape[0], heads = args.q.shape[1], h = args.q.shape[2];
  const std::int64_t capacity = args.keys.shape[1], kv_heads = args.keys.shape[2];
  check.that(b > 0 && heads > 0 && h > 0 && capacity > 0,
             concat("q is ", args.q.shape.text(), " and keys are ", args.keys.shape.text(),
                    ", expected extents above 0"));
  check.that(h <= kMaxHead, concat("head size ", h, ", expected at most ", kMaxHead));
  check.that(kv_heads > 0 && heads % kv_heads == 0,
             concat(heads, " query heads cannot share ", kv_heads,
                    " key-value heads: their number must divide that of the query heads"));
  check.that(b <= args.keys.shape[0],
             concat("q has ", b, " rows, the cache has ", args.keys.shape[0]));
  check.that(args.window >= 0,
             concat("window is ", args.window, ", expected 0 (a query sees itself only) or more"));
  check.tensor("keys", args.keys, {args.keys.shape[0], capacity, kv_heads, h}, dtype);
  check.tensor("values", args.values, args.keys.shape, dtype);
  check.tensor("out", args.out, args.q.shape, dtype);
  check.tensor("positions", args.positions, {b}, DType::kI32);
  if (args.starts) check.tensor("starts", args.starts, {b}, DType::kI32);
  check.any_shape("workspace", args.workspace);
  const std::int64_t needed = decode_attention_workspace(b, heads, capacity, h);
  check.that(args.workspace.numel() >= needed,
             concat("workspace has ", args.workspace.numel(), " elements, needs ", needed,
                    " (decode_attention_workspace)"));
  check.no_overlap({{"out", args.out}, {"workspace", args.workspace}},
                   {{"q", args.q}, {"keys", args.keys}, {"values", args.values}});
  attend.submit(stream, args,
                {.writes = {args.out, args.workspace},
                 .reads = {args.q, args.keys, args.values, args.positions, args.starts}});
}

}  // namespace muo
