#include "kernels/attention.h"

#include <cmath>

#include "kernels/host/attention.h"
#include "kernels/host/attention_tile.h"
#include "kernels/host/onednn.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

constexpr Index kKeys = 256;  // keys per tile

// Scratch of one (batch row, key-value head), in words (attention_product.h).
struct Scratch {
  Index k_width;
  Index width;
  float* k;       // (keys, k_width)
  float* v;       // (words of keys, width)
  float* q_t;     // (words of h, kQueries)
  float* out_t;   // (width, kQueries), fp32
  float* scores;  // (kKeys, kQueries), fp32 exponents for base 2; later probabilities, kDepth keys
                  // in the row of the first of them
};

struct Softmax {
  F32 maximum[kQueryVectors];
  F32 sum[kQueryVectors];
};

// Turns scores into probabilities relative to the running maximum. Returns the factor by which
// earlier sums must be multiplied. `sum` adds up the probabilities before they are rounded.
template <class Operand>
F32 update(float* scores, Index count, F32& maximum, F32& sum) {
  constexpr Index kDepth = Operand::kDepth;
  const auto score = [&](Index j) { return load(scores + j * kQueries); };
  // Four chains: a single one would be bound by the latency of max.
  F32 high[4] = {maximum, maximum, maximum, maximum};
  Index j = 0;
  for (; j + 4 <= count; j += 4)
    for (Index n = 0; n < 4; ++n)
      high[n] = simd::max(high[n], score(j + n));
  for (; j < count; ++j)
    high[0] = simd::max(high[0], score(j));
  const F32 highest = simd::max(simd::max(high[0], high[1]), simd::max(high[2], high[3]));
  F32 total = simd::broadcast(0.0F);
  for (j = 0; j < count; j += kDepth) {
    typename Operand::Group p;
    for (Index n = 0; n < kDepth; ++n) {
      p[n] = simd::exp2(score(j + n) - highest);
      total = total + p[n];
    }
    store(scores + j * kQueries, Operand::round(p));
  }
  const F32 rescale = simd::exp2(maximum - highest);
  sum = sum * rescale + total;
  maximum = highest;
  return rescale;
}

// Adds the keys [begin, end) to the running softmax and to out_t.
template <class Operand>
void add_tile(const Scratch& s, const QueryBlock& block, Index begin, Index end, Index h,
              float factor, Softmax& softmax) {
  constexpr Index kDepth = Operand::kDepth;
  const auto at = [&](Index key, Index v) {
    return s.scores + (key - begin) * kQueries + v * kLanes;
  };
  block.for_panel_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<Operand, false, false>(at(from, low), kQueries, s.k + from * s.k_width, s.k_width,
                                   s.q_t + low * kLanes, kQueries, to - from, high - low,
                                   words<Operand>(h), factor);
  });
  for (Index v = 0; v < block.vectors(); ++v) {
    const auto [from, to] = block.keys_of(v, v + 1, begin, end);
    if (from >= to) continue;
    block.mask(s.scores, begin, v, from, to);
    const F32 rescale = update<Operand>(at(from, v), to - from, softmax.maximum[v], softmax.sum[v]);
    if (begin == block.keys_begin()) continue;  // out_t is still zero
    for (Index d = 0; d < h; ++d) {
      float* p = s.out_t + d * kQueries + v * kLanes;
      store(p, load(p) * rescale);
    }
  }
  block.for_panel_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<Operand, true, true>(s.out_t + low * kLanes, kQueries, s.v + from / kDepth * s.width,
                                 s.width, at(from, low), kDepth * kQueries, h, high - low,
                                 (to - from) / kDepth);
  });
}

template <class Operand>
void attend(const Scratch& s, const QueryBlock& block, const typename Operand::Element* q,
            typename Operand::Element* out, float* lse, Index stride, Index h, float scale) {
  transpose_in<Operand>(s.q_t, kQueries, q, stride, block.count, h);
  std::fill_n(s.out_t, s.width * kQueries, 0.0F);
  Softmax softmax;
  for (Index v = 0; v < kQueryVectors; ++v) {
    softmax.maximum[v] = simd::broadcast(std::numeric_limits<float>::lowest());
    softmax.sum[v] = simd::broadcast(0.0F);
  }
  for (Index j = block.keys_begin(); j < block.keys_end(); j += kKeys)
    add_tile<Operand>(s, block, j, std::min(j + kKeys, block.keys_end()), h, scale * kLog2E,
                      softmax);

  transpose_out(out, stride, s.out_t, kQueries, block.count, h,
                [&](Index v) { return simd::broadcast(1.0F) / softmax.sum[v]; });
  float maximum[kQueries];
  float sum[kQueries];
  for (Index v = 0; v < kQueryVectors; ++v) {
    store(maximum + v * kLanes, softmax.maximum[v]);
    store(sum + v * kLanes, softmax.sum[v]);
  }
  for (Index i = 0; i < block.count; ++i)
    lse[i] = maximum[i] * kLn2 + std::log(sum[i]);
}

template <class Operand>
void attention_of(const AttentionArgs& args) {
  using T = typename Operand::Element;
  const Index b = args.q.shape[0], t = args.q.shape[1], heads = args.q.shape[2],
              h = args.q.shape[3], kv_heads = args.k.shape[2], group = heads / kv_heads;
  const Index stride = heads * h, kv_stride = kv_heads * h, keys = round_up(t, 2);
  Workspace workspace(args.workspace.as<float>());
  Scratch s{};
  s.width = round_up(h, kLanes);
  s.k_width = words<Operand>(s.width);
  s.k = workspace.take(keys * s.k_width);
  s.v = workspace.take(words<Operand>(keys) * s.width);
  s.q_t = workspace.take(s.width * kQueries);
  s.out_t = workspace.take(s.width * kQueries);
  s.scores = workspace.take(std::min(kKeys, keys) * kQueries);
  for (Index row = 0; row < b; ++row) {
    for (Index kv = 0; kv < kv_heads; ++kv) {
      const Index kv_offset = (row * t * kv_heads + kv) * h;
      pack_rows<Operand>(s.k, s.k_width, keys, args.k.as<T>() + kv_offset, kv_stride, t, h);
      pack_columns<Operand>(s.v, s.width, words<Operand>(keys), args.v.as<T>() + kv_offset,
                            kv_stride, t, h);
      for (Index head = kv * group; head < (kv + 1) * group; ++head)
        for (Index first = 0; first < t; first += kQueries) {
          const QueryBlock block(first, std::min(kQueries, t - first), std::min(args.window, t),
                                 args.starts, row);
          const Index offset = ((row * t + first) * heads + head) * h;
          attend<Operand>(s, block, args.q.as<T>() + offset, args.out.as<T>() + offset,
                          args.lse.as<float>() + (row * heads + head) * t + first, stride, h,
                          args.scale);
        }
    }
  }
}

void attention(const AttentionArgs& args) {
  dispatch_operand(args.q.dtype, [&]<class Operand>() { attention_of<Operand>(args); });
}

const KernelRegistration kRegistration(&attention);

}  // namespace

bool attention_multiplies_bf16() {
#ifdef __AVX512F__
  static const bool has_instructions = has_avx512_bf16();
  return has_instructions;
#else
  return false;
#endif
}

}  // namespace muo::host
