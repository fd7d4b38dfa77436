#include "kernels/attention.h"
#include "kernels/host/attention.h"
#include "kernels/host/attention_tile.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

constexpr Index kKeys = 64;  // keys per tile

// Scratch of one (batch row, key-value head). Operands consist of words (attention_product.h)
// along the features, the keys or the queries; if a word is a single number, operands of identical
// layout share memory.
struct Scratch {
  Index k_width;
  Index width;
  float* k;        // (keys, k_width), along the features
  float* v;        // (keys, k_width), along the features
  float* k_cols;   // (words of keys, width), along the keys
  float* dk;       // (keys, width) fp32, without the factor `scale`
  float* dv;       // (keys, width) fp32
  float* q;        // (words of kQueries, width), along the queries
  float* dout;     // (words of kQueries, width), along the queries
  float* q_t;      // (words of h, kQueries), along the features
  float* dout_t;   // (words of h, kQueries), along the features
  float* dq_t;     // (width, kQueries) fp32, without the factor `scale`
  float* p_rows;   // (kKeys, words of kQueries) probabilities, along the queries
  float* ds_rows;  // (kKeys, words of kQueries) gradient of the scaled scores, along the queries
  float* p;        // (kKeys, kQueries) fp32 scores as exponents for base 2
  float* ds;       // (kKeys, kQueries) fp32 gradient of the probabilities; later of the scaled
                   // scores, in words along the keys: kDepth keys in the row of the first of them

  template <class Operand>
  static Scratch of(Workspace& workspace, Index t, Index h) {
    constexpr Index kDepth = Operand::kDepth;
    Scratch s{};
    const Index keys = round_up(t, 2);
    s.width = round_up(h, kLanes);
    s.k_width = words<Operand>(s.width);
    s.k = workspace.take(keys * s.k_width);
    s.v = workspace.take(keys * s.k_width);
    s.k_cols = kDepth == 1 ? s.k : workspace.take(keys / kDepth * s.width);
    s.dk = workspace.take(keys * s.width);
    s.dv = workspace.take(keys * s.width);
    s.q = workspace.take(kQueries / kDepth * s.width);
    s.dout = workspace.take(kQueries / kDepth * s.width);
    s.q_t = workspace.take(s.width * kQueries);
    s.dout_t = workspace.take(s.width * kQueries);
    s.dq_t = workspace.take(s.width * kQueries);
    s.p = workspace.take(kKeys * kQueries);
    s.ds = workspace.take(kKeys * kQueries);
    s.p_rows = kDepth == 1 ? s.p : workspace.take(kKeys * kQueries / kDepth);
    s.ds_rows = kDepth == 1 ? s.ds : workspace.take(kKeys * kQueries / kDepth);
    return s;
  }
};

struct Rows {
  float lse[kQueries];  // in units of log(2)
  float dot[kQueries];  // sum over features of dout * out
};

template <class Operand>
void add_tile(const Scratch& s, const QueryBlock& block, Index begin, Index end, Index h,
              float factor, const Rows& rows) {
  constexpr Index kDepth = Operand::kDepth;
  const auto at = [&](float* tile, Index key, Index v) {
    return tile + (key - begin) * kQueries + v * kLanes;
  };
  const auto at_row = [&](float* tile, Index key, Index v) {
    return tile + ((key - begin) * kQueries + v * kLanes) / kDepth;
  };
  block.for_panel_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<Operand, false, false>(at(s.p, from, low), kQueries, s.k + from * s.k_width, s.k_width,
                                   s.q_t + low * kLanes, kQueries, to - from, high - low,
                                   words<Operand>(h), factor);
    product<Operand, false, false>(at(s.ds, from, low), kQueries, s.v + from * s.k_width, s.k_width,
                                   s.dout_t + low * kLanes, kQueries, to - from, high - low,
                                   words<Operand>(h));
  });
  for (Index v = 0; v < block.vectors(); ++v) {
    const auto [from, to] = block.keys_of(v, v + 1, begin, end);
    if (from >= to) continue;
    block.mask(s.p, begin, v, from, to);
    const F32 lse = load(rows.lse + v * kLanes);
    const F32 dot = load(rows.dot + v * kLanes);
    for (Index j = from; j < to; j += kDepth) {
      typename Operand::Group p;
      typename Operand::Group ds;
      for (Index n = 0; n < kDepth; ++n) {
        p[n] = simd::exp2(load(at(s.p, j + n, v)) - lse);
        ds[n] = p[n] * (load(at(s.ds, j + n, v)) - dot);
      }
      Operand::store_rows(at_row(s.p_rows, j, v), kQueries / kDepth, p);
      Operand::store_rows(at_row(s.ds_rows, j, v), kQueries / kDepth, ds);
      if constexpr (kDepth > 1) store(at(s.ds, j, v), Operand::round(ds));
    }
  }
  block.for_runs(0, block.vectors(), begin, end, [&](Index from, Index to, Index low, Index high) {
    const Index queries = (high - low) * kLanes;
    const Index first = low * kLanes / kDepth * s.width;
    product<Operand, false, true>(s.dv + from * s.width, s.width, at_row(s.p_rows, from, low),
                                  kQueries / kDepth, s.dout + first, s.width, to - from,
                                  s.width / kLanes, queries / kDepth);
    product<Operand, false, true>(s.dk + from * s.width, s.width, at_row(s.ds_rows, from, low),
                                  kQueries / kDepth, s.q + first, s.width, to - from,
                                  s.width / kLanes, queries / kDepth);
  });
  block.for_panel_runs(begin, end, [&](Index from, Index to, Index low, Index high) {
    product<Operand, true, true>(s.dq_t + low * kLanes, kQueries,
                                 s.k_cols + from / kDepth * s.width, s.width, at(s.ds, from, low),
                                 kDepth * kQueries, h, high - low, (to - from) / kDepth);
  });
}

// The tensors of one head, from the first query of one block of queries on.
template <class T>
struct BlockPointers {
  const T* q;
  const T* out;
  const T* dout;
  const float* lse;
  T* dq;
};

template <class Operand>
void attend(const Scratch& s, const QueryBlock& block,
            const BlockPointers<typename Operand::Element>& x, Index stride, Index h, float scale) {
  const float factor = scale * kLog2E;
  pack_columns<Operand>(s.q, s.width, words<Operand>(kQueries), x.q, stride, block.count, h);
  pack_columns<Operand>(s.dout, s.width, words<Operand>(kQueries), x.dout, stride, block.count, h);
  transpose_in<Operand>(s.q_t, kQueries, x.q, stride, block.count, h);
  transpose_in<Operand>(s.dout_t, kQueries, x.dout, stride, block.count, h);
  std::fill_n(s.dq_t, s.width * kQueries, 0.0F);
  Rows rows{};
  for (Index i = 0; i < block.count; ++i) {
    rows.dot[i] = simd::dot(x.out + i * stride, x.dout + i * stride, h);
    rows.lse[i] = x.lse[i] * kLog2E;
  }
  for (Index j = block.keys_begin(); j < block.keys_end(); j += kKeys)
    add_tile<Operand>(s, block, j, std::min(j + kKeys, block.keys_end()), h, factor, rows);

  transpose_out(x.dq, stride, s.dq_t, kQueries, block.count, h,
                [&](Index /*v*/) { return simd::broadcast(scale); });
}

template <class Operand>
void attention_backward_of(const AttentionBackwardArgs& args) {
  using T = typename Operand::Element;
  const Index b = args.q.shape[0], t = args.q.shape[1], heads = args.q.shape[2],
              h = args.q.shape[3], kv_heads = args.k.shape[2], group = heads / kv_heads;
  const Index stride = heads * h, kv_stride = kv_heads * h, keys = round_up(t, 2);
  Workspace workspace(args.workspace.as<float>());
  const Scratch s = Scratch::of<Operand>(workspace, t, h);
  for (Index row = 0; row < b; ++row) {
    for (Index kv = 0; kv < kv_heads; ++kv) {
      const Index kv_offset = (row * t * kv_heads + kv) * h;
      const T* k = args.k.as<T>() + kv_offset;
      pack_rows<Operand>(s.k, s.k_width, keys, k, kv_stride, t, h);
      pack_rows<Operand>(s.v, s.k_width, keys, args.v.as<T>() + kv_offset, kv_stride, t, h);
      if (s.k_cols != s.k)
        pack_columns<Operand>(s.k_cols, s.width, words<Operand>(keys), k, kv_stride, t, h);
      std::fill_n(s.dk, keys * s.width, 0.0F);
      std::fill_n(s.dv, keys * s.width, 0.0F);
      for (Index head = kv * group; head < (kv + 1) * group; ++head)
        for (Index first = 0; first < t; first += kQueries) {
          const QueryBlock block(first, std::min(kQueries, t - first), std::min(args.window, t),
                                 args.starts, row);
          const Index offset = ((row * t + first) * heads + head) * h;
          attend<Operand>(s, block,
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
        simd::for_lanes(h, [&](Index d, auto lanes) {
          const F32 scaled = load(s.dk + j * s.width + d) * simd::broadcast(args.scale);
          store(dk + j * kv_stride + d, scaled, lanes);
          store(dv + j * kv_stride + d, load(s.dv + j * s.width + d), lanes);
        });
    }
  }
}

void attention_backward(const AttentionBackwardArgs& args) {
  dispatch_operand(args.q.dtype, [&]<class Operand>() { attention_backward_of<Operand>(args); });
}

const KernelRegistration kRegistration(&attention_backward);

}  // namespace

std::int64_t attention_workspace(std::int64_t t, std::int64_t h, DType dtype) {
  Workspace counted;
  dispatch_operand(dtype, [&]<class Operand>() { Scratch::of<Operand>(counted, t, h); });
  return counted.needed();  // the forward pass never needs more
}

}  // namespace muo::host
