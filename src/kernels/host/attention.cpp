#include <cmath>

#include "kernels/attention_impl.h"
#include "kernels/host/attention_tile.h"
#include "kernels/host/dispatch.h"

namespace muo::host {
namespace {

// Scratch of one (batch row, key-value head); every row has `width` elements.
struct Scratch {
  Index width;
  float* k;       // (t, width)
  float* v;       // (t, width)
  float* q_t;     // (width, kQueries), times scale log2(e): scores are exponents of 2
  float* out_t;   // (width, kQueries)
  float* scores;  // (kKeys, kQueries)
};

struct Softmax {
  F32 maximum[kQueryVectors];
  F32 sum[kQueryVectors];
};

// Scores become probabilities relative to the running maximum. Returns by what earlier sums are
// to be multiplied. The sums are of the probabilities before they are rounded.
template <class T>
F32 update(float* scores, Index count, F32& maximum, F32& sum) {
  // Four chains, as one would wait for the latency of each maximum.
  F32 high[4] = {maximum, maximum, maximum, maximum};
  Index j = 0;
  for (; j + 4 <= count; j += 4)
    for (Index n = 0; n < 4; ++n)
      high[n] = simd::max(high[n], load(scores + (j + n) * kQueries));
  for (; j < count; ++j)
    high[0] = simd::max(high[0], load(scores + j * kQueries));
  const F32 highest = simd::max(simd::max(high[0], high[1]), simd::max(high[2], high[3]));
  F32 total = simd::broadcast(0.0F);
  for (j = 0; j < count; ++j) {
    const F32 p = simd::exp2(load(scores + j * kQueries) - highest);
    store(scores + j * kQueries, operand<T>(p));
    total = total + p;
  }
  const F32 factor = simd::exp2(maximum - highest);
  sum = sum * factor + total;
  maximum = highest;
  return factor;
}

// Adds the keys [begin, end) to the running softmax and to out_t.
template <class T>
void add_tile(const Scratch& s, const QueryBlock& block, Index begin, Index end, Index h,
              Softmax& softmax) {
  block.for_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<false>(s.scores + (from - begin) * kQueries + low * kLanes, kQueries,
                   s.k + from * s.width, s.width, s.q_t + low * kLanes, kQueries, to - from,
                   high - low, h, false);
  });
  for (Index v = 0; v < block.vectors(); ++v) {
    const auto [from, to] = block.keys_of(v, begin, end);
    if (from >= to) continue;
    block.mask(s.scores, begin, v, from, to);
    const F32 factor = update<T>(s.scores + (from - begin) * kQueries + v * kLanes, to - from,
                                 softmax.maximum[v], softmax.sum[v]);
    if (begin == block.keys_begin()) continue;  // out_t is still zero
    for (Index d = 0; d < h; ++d) {
      float* p = s.out_t + d * kQueries + v * kLanes;
      store(p, load(p) * factor);
    }
  }
  block.for_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<true>(s.out_t + low * kLanes, kQueries, s.v + from * s.width, s.width,
                  s.scores + (from - begin) * kQueries + low * kLanes, kQueries, h, high - low,
                  to - from, true);
  });
}

template <class T>
void attend(const Scratch& s, const QueryBlock& block, const T* q, T* out, float* lse, Index stride,
            Index h, float scale) {
  transpose_in(s.q_t, q, stride, block.count, h, scale * kLog2E);
  std::fill(s.out_t, s.out_t + s.width * kQueries, 0.0F);
  Softmax softmax;
  for (Index v = 0; v < kQueryVectors; ++v) {
    softmax.maximum[v] = simd::broadcast(std::numeric_limits<float>::lowest());
    softmax.sum[v] = simd::broadcast(0.0F);
  }
  for (Index j = block.keys_begin(); j < block.keys_end(); j += kKeys)
    add_tile<T>(s, block, j, std::min(j + kKeys, block.keys_end()), h, softmax);

  for (Index v = 0; v < block.vectors(); ++v) {
    const F32 inverse = simd::broadcast(1.0F) / softmax.sum[v];
    for (Index d = 0; d < h; ++d) {
      float* p = s.out_t + d * kQueries + v * kLanes;
      store(p, load(p) * inverse);
    }
  }
  transpose_out(out, stride, s.out_t, block.count, h, 1.0F);
  float maximum[kQueries];
  float sum[kQueries];
  for (Index v = 0; v < kQueryVectors; ++v) {
    store(maximum + v * kLanes, softmax.maximum[v]);
    store(sum + v * kLanes, softmax.sum[v]);
  }
  for (Index i = 0; i < block.count; ++i)
    lse[i] = maximum[i] * kLn2 + std::log(sum[i]);
}

template <class T>
void attention_of(const AttentionArgs& args) {
  const Index b = args.q.shape[0], t = args.q.shape[1], heads = args.q.shape[2],
              h = args.q.shape[3], kv_heads = args.k.shape[2], group = heads / kv_heads;
  const Index stride = heads * h, kv_stride = kv_heads * h;
  Workspace workspace(args.workspace.as<float>());
  Scratch s{};
  s.width = round_up(h, kLanes);
  s.k = workspace.take(t * s.width);
  s.v = workspace.take(t * s.width);
  s.q_t = workspace.take(kQueries * s.width);
  s.out_t = workspace.take(kQueries * s.width);
  s.scores = workspace.take(kKeys * kQueries);
  for (Index row = 0; row < b; ++row) {
    for (Index kv = 0; kv < kv_heads; ++kv) {
      const Index kv_offset = (row * t * kv_heads + kv) * h;
      pack(s.k, s.width, t, args.k.as<T>() + kv_offset, kv_stride, t, h);
      pack(s.v, s.width, t, args.v.as<T>() + kv_offset, kv_stride, t, h);
      for (Index head = kv * group; head < (kv + 1) * group; ++head)
        for (Index first = 0; first < t; first += kQueries) {
          const QueryBlock block{first, std::min(kQueries, t - first), std::min(args.window, t)};
          const Index offset = ((row * t + first) * heads + head) * h;
          attend(s, block, args.q.as<T>() + offset, args.out.as<T>() + offset,
                 args.lse.as<float>() + (row * heads + head) * t + first, stride, h, args.scale);
        }
    }
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  dispatch(args.q.dtype, [&]<class T>() { attention_of<T>(args); });
}

}  // namespace muo::host
