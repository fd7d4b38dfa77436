#include "kernels/decode_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// Keys and values of the visible positions, in order, `stride` elements apart.
template <class T>
struct Keys {
  const T* k;
  const T* v;
  std::int64_t count, stride;
};

// scores <- the softmax of scale q k^T, before the division by its sum, which is returned.
template <class T>
float exponentials(float* scores, const T* q, const Keys<T>& keys, std::int64_t h, float scale) {
  float highest = std::numeric_limits<float>::lowest();
  for (std::int64_t j = 0; j < keys.count; ++j) {
    scores[j] = scale * simd::dot(q, keys.k + j * keys.stride, h);
    highest = std::max(highest, scores[j]);
  }
  const simd::F32 maximum = simd::broadcast(highest);
  simd::F32 sum = simd::broadcast(0.0F);
  simd::for_lanes(keys.count, [&](std::int64_t j, auto lanes) {
    const simd::F32 p = simd::exp(simd::load(scores + j, lanes) - maximum);
    simd::store(scores + j, p, lanes);
    sum = sum + simd::keep(p, lanes, simd::broadcast(0.0F));
  });
  return simd::sum(sum);
}

// out <- factor * (sum over keys of p v), for kVectors vectors of elements, summed in registers.
template <std::size_t kVectors, class T, class Lanes>
void weighted_sum(T* out, const float* p, const Keys<T>& keys, float factor, Lanes lanes) {
  simd::F32 sums[kVectors];
  std::ranges::fill(sums, simd::broadcast(0.0F));
  for (std::int64_t j = 0; j < keys.count; ++j) {
    const simd::F32 weight = simd::broadcast(p[j]);
    const T* v = keys.v + j * keys.stride;
    for (simd::F32& sum : sums) {
      sum = simd::fma(weight, simd::load(v, lanes), sum);
      v += simd::kLanes;
    }
  }
  for (const simd::F32& sum : sums) {
    simd::store(out, sum * simd::broadcast(factor), lanes);
    out += simd::kLanes;
  }
}

template <class T>
void weighted_sums(T* out, const float* p, Keys<T> keys, std::int64_t h, float factor) {
  constexpr std::size_t kVectors = 4;
  constexpr std::int64_t kElements = kVectors * simd::kLanes;
  std::int64_t d = 0;
  const auto take = [&](std::int64_t elements) {
    d += elements;
    out += elements;
    keys.v += elements;
  };
  for (; d + kElements <= h; take(kElements))
    weighted_sum<kVectors>(out, p, keys, factor, simd::AllLanes{});
  for (; d + simd::kLanes <= h; take(simd::kLanes))
    weighted_sum<1>(out, p, keys, factor, simd::AllLanes{});
  if (d < h) weighted_sum<1>(out, p, keys, factor, simd::FirstLanes{h - d});
}

void decode_attention(const DecodeAttentionArgs& args) {
  const std::int64_t b = args.q.shape[0], heads = args.q.shape[1], h = args.q.shape[2];
  const std::int64_t capacity = args.keys.shape[1], kv_heads = args.keys.shape[2];
  const std::int64_t stride = kv_heads * h;
  auto* scores = args.workspace.as<float>();
  dispatch(args.q.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < b; ++i) {
      const std::int64_t position =
          index_at(args.positions, i, "decode_attention: position", 0, capacity);
      const std::int64_t start =
          args.starts ? index_at(args.starts, i, "decode_attention: start", 0, position + 1) : 0;
      const std::int64_t first = std::max(position - std::min(args.window, position), start);
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t at = (i * capacity + first) * stride + head / (heads / kv_heads) * h;
        const Keys<T> keys{args.keys.as<T>() + at, args.values.as<T>() + at, position + 1 - first,
                           stride};
        const std::int64_t of_head = (i * heads + head) * h;
        const float sum = exponentials(scores, args.q.as<T>() + of_head, keys, h, args.scale);
        weighted_sums(args.out.as<T>() + of_head, scores, keys, h, 1.0F / sum);
      }
    }
  });
}

void cache_append(const CacheAppendArgs& args) {
  const Shape& cache = args.keys.shape;
  const std::int64_t b = args.k.shape[0], t = args.k.shape[1], width = cache[2] * cache[3];
  for (std::int64_t i = 0; i < b; ++i) {
    const std::int64_t slot =
        args.slots ? index_at(args.slots, i, "cache_append: slot", 0, cache[0]) : i;
    const std::int64_t position =
        args.positions ? index_at(args.positions, i, "cache_append: position", 0, cache[1] - t + 1)
                       : 0;
    const auto copy = [&](const Tensor& to, const Tensor& from) {
      const std::int64_t row = width * size_of(from.dtype);
      std::copy_n(from.data + i * t * row, t * row, to.data + (slot * cache[1] + position) * row);
    };
    copy(args.keys, args.k);
    copy(args.values, args.v);
  }
}

const KernelRegistration kRegistration(&cache_append, &decode_attention);

}  // namespace
}  // namespace muo::host
