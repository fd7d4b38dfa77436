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
  float* dk;      // (t, width), without the factor `scale`
  float* dv;      // (t, width)
  float* q;       // (kQueries, width)
  float* dout;    // (kQueries, width)
  float* q_t;     // (width, kQueries), times scale log2(e): scores are exponents of 2
  float* dout_t;  // (width, kQueries)
  float* dq_t;    // (width, kQueries), without the factor `scale`
  float* p;       // (kKeys, kQueries) scores, then probabilities
  float* ds;      // (kKeys, kQueries) gradient of the probabilities, then of the scaled scores
};

struct Rows {
  float lse[kQueries];  // in units of log(2)
  float dot[kQueries];  // sum over features of dout * out
};

template <class T>
void add_tile(const Scratch& s, const QueryBlock& block, Index begin, Index end, Index h,
              const Rows& rows) {
  const auto at = [&](float* tile, Index key, Index v) {
    return tile + (key - begin) * kQueries + v * kLanes;
  };
  block.for_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<false>(at(s.p, from, low), kQueries, s.k + from * s.width, s.width,
                   s.q_t + low * kLanes, kQueries, to - from, high - low, h, false);
    product<false>(at(s.ds, from, low), kQueries, s.v + from * s.width, s.width,
                   s.dout_t + low * kLanes, kQueries, to - from, high - low, h, false);
  });
  for (Index v = 0; v < block.vectors(); ++v) {
    const auto [from, to] = block.keys_of(v, begin, end);
    if (from >= to) continue;
    block.mask(s.p, begin, v, from, to);
    const F32 lse = load(rows.lse + v * kLanes);
    const F32 dot = load(rows.dot + v * kLanes);
    for (Index j = from; j < to; ++j) {
      const F32 p = simd::exp2(load(at(s.p, j, v)) - lse);
      store(at(s.p, j, v), operand<T>(p));
      store(at(s.ds, j, v), operand<T>(p * (load(at(s.ds, j, v)) - dot)));
    }
  }
  block.for_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    const Index queries = (high - low) * kLanes;
    product<false>(s.dv + from * s.width, s.width, at(s.p, from, low), kQueries,
                   s.dout + low * kLanes * s.width, s.width, to - from, s.width / kLanes, queries,
                   true);
    product<false>(s.dk + from * s.width, s.width, at(s.ds, from, low), kQueries,
                   s.q + low * kLanes * s.width, s.width, to - from, s.width / kLanes, queries,
                   true);
    product<true>(s.dq_t + low * kLanes, kQueries, s.k + from * s.width, s.width,
                  at(s.ds, from, low), kQueries, h, high - low, to - from, true);
  });
}

// One block of queries of one head; all pointers are at its first query.
template <class T>
struct BlockPointers {
  const T* q;
  const T* out;
  const T* dout;
  const float* lse;
  T* dq;
};

template <class T>
void attend(const Scratch& s, const QueryBlock& block, const BlockPointers<T>& x, Index stride,
            Index h, float scale) {
  pack(s.q, s.width, kQueries, x.q, stride, block.count, h);
  pack(s.dout, s.width, kQueries, x.dout, stride, block.count, h);
  transpose_in(s.q_t, s.q, s.width, kQueries, s.width, scale * kLog2E);
  transpose_in(s.dout_t, s.dout, s.width, kQueries, s.width, 1.0F);
  std::fill(s.dq_t, s.dq_t + s.width * kQueries, 0.0F);
  Rows rows{};
  for (Index i = 0; i < block.count; ++i) {
    F32 sum = simd::broadcast(0.0F);
    simd::for_lanes(h, [&](Index d, auto lanes) {
      sum = simd::fma(load(x.out + i * stride + d, lanes), load(s.dout + i * s.width + d, lanes),
                      sum);
    });
    rows.dot[i] = simd::sum(sum);
    rows.lse[i] = x.lse[i] * kLog2E;
  }
  for (Index j = block.keys_begin(); j < block.keys_end(); j += kKeys)
    add_tile<T>(s, block, j, std::min(j + kKeys, block.keys_end()), h, rows);

  transpose_out(x.dq, stride, s.dq_t, block.count, h, scale);
}

template <class T>
void attention_backward_of(const AttentionBackwardArgs& args) {
  const Index b = args.q.shape[0], t = args.q.shape[1], heads = args.q.shape[2],
              h = args.q.shape[3], kv_heads = args.k.shape[2], group = heads / kv_heads;
  const Index stride = heads * h, kv_stride = kv_heads * h;
  Workspace workspace(args.workspace.as<float>());
  Scratch s{};
  s.width = round_up(h, kLanes);
  s.k = workspace.take(t * s.width);
  s.v = workspace.take(t * s.width);
  s.dk = workspace.take(t * s.width);
  s.dv = workspace.take(t * s.width);
  s.q = workspace.take(kQueries * s.width);
  s.dout = workspace.take(kQueries * s.width);
  s.q_t = workspace.take(kQueries * s.width);
  s.dout_t = workspace.take(kQueries * s.width);
  s.dq_t = workspace.take(kQueries * s.width);
  s.p = workspace.take(kKeys * kQueries);
  s.ds = workspace.take(kKeys * kQueries);
  for (Index row = 0; row < b; ++row) {
    for (Index kv = 0; kv < kv_heads; ++kv) {
      const Index kv_offset = (row * t * kv_heads + kv) * h;
      pack(s.k, s.width, t, args.k.as<T>() + kv_offset, kv_stride, t, h);
      pack(s.v, s.width, t, args.v.as<T>() + kv_offset, kv_stride, t, h);
      std::fill(s.dk, s.dk + t * s.width, 0.0F);
      std::fill(s.dv, s.dv + t * s.width, 0.0F);
      for (Index head = kv * group; head < (kv + 1) * group; ++head)
        for (Index first = 0; first < t; first += kQueries) {
          const QueryBlock block{first, std::min(kQueries, t - first), std::min(args.window, t)};
          const Index offset = ((row * t + first) * heads + head) * h;
          attend<T>(s, block,
                    {.q = args.q.as<T>() + offset,
                     .out = args.out.as<T>() + offset,
                     .dout = args.dout.as<T>() + offset,
                     .lse = args.lse.as<float>() + (row * heads + head) * t + first,
                     .dq = args.dq.as<T>() + offset},
                    stride, h, args.scale);
        }
      T* dk = args.dk.as<T>() + kv_offset;
      T* dv = args.dv.as<T>() + kv_offset;
      for (Index j = 0; j < t; ++j)
        for (Index d = 0; d < h; ++d) {
          dk[j * kv_stride + d] = from_f32<T>(s.dk[j * s.width + d] * args.scale);
          dv[j * kv_stride + d] = from_f32<T>(s.dv[j * s.width + d]);
        }
    }
  }
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  dispatch(args.q.dtype, [&]<class T>() { attention_backward_of<T>(args); });
}

std::int64_t attention_workspace(std::int64_t t, std::int64_t h) {
  const Index width = round_up(h, kLanes);
  return Workspace::kSlack + 4 * t * width + 5 * kQueries * width + 2 * kKeys * kQueries;
}

}  // namespace muo::host
