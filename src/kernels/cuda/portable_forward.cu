#include <cmath>

#include "kernels/cuda/portable_tile.h"

namespace muo::cuda {

MUO_SHARED_MEMORY

namespace {

using namespace portable;  // NOLINT(google-build-using-namespace): the rest of this file

constexpr float kLn2 = 0.693147180559945309417F;

template <class T>
struct Forward : AttentionTensors<T, std::int64_t> {
  const std::int32_t* starts;
};

// A block has 32 (D = 256: 16) queries of one head, and loops over tiles; keys, and after them
// values, use one buffer. 4 D FLOPs per pair of the tiles that touch the band; bound by shared
// memory, with 0.4 (dots) and 0.6 (add) 16-byte loads per 4 FMAs.
template <class T, int D, bool kDocuments>
__global__ void __launch_bounds__(kThreads, 2) portable_forward_kernel(Forward<T> p) {
  using L = Layout<D>;
  float* const queries = shared_memory<float>();
  float* const keys = queries + L::kRows;
  float* const pairs = keys + L::kRows;
  const TileBlock<D> block(p.g);
  const Geometry& g = block.g;
  const auto seen = Seen<kDocuments>::of_row(g, p.starts, block.batch_row);
  const auto k = kv_rows_of(p.k, g, block.batch_row, block.head / g.group);
  const auto v = kv_rows_of(p.v, g, block.batch_row, block.head / g.group);
  block.copy(queries, rows_of(p.q, g, block.batch_row, block.head), block.first);

  // Finite, so that infinities are not subtracted in rows that have not seen a key yet.
  float maximum[2] = {-3.0e38F, -3.0e38F};
  float sum[2] = {0.0F, 0.0F};
  typename L::Sums out = {};
  const float scale = g.scale * kLog2E;
  const std::int64_t end = min(g.t, block.first + L::kTile);
  for (std::int64_t key = block.first_key(seen); key < end; key += L::kTile) {
    __syncthreads();
    block.copy(keys, k, key);
    __syncthreads();
    typename L::Pairs scores;
    block.dots(scores, queries, keys);
    for (int i = 0; i < 2; ++i) {
      float highest = maximum[i];
      for (int c = 0; c < L::kColumns; ++c) {
        float& s = scores[i][c];
        s = visible(seen, block.first + block.row + i, key + block.column(c)) ? s * scale
                                                                              : -INFINITY;
        highest = fmaxf(highest, s);
      }
      highest = warp_max<L::kAcross>(highest);
      const float factor = exp2f(maximum[i] - highest);
      float total = 0.0F;
      for (float& s : scores[i]) {
        s = exp2f(s - highest);
        total += s;
      }
      sum[i] = fmaf(sum[i], factor, total);
      maximum[i] = highest;
      for (auto& four : out[i])
        for (float& x : four)
          x *= factor;
    }
    block.template put<T>(pairs, scores);
    __syncthreads();  // the keys are no longer used, and the pairs are written
    block.copy(keys, v, key);
    __syncthreads();
    block.add(out, pairs, keys);
  }
  for (int i = 0; i < 2; ++i) {
    sum[i] = warp_sum<L::kAcross>(sum[i]);
    const std::int64_t query = block.first + block.row + i;
    if (block.across == 0 && query < g.t)
      p.lse[g.row_offset(block.batch_row, block.head) + query] =
          fmaf(maximum[i], kLn2, logf(sum[i]));
  }
  block.write(rows_of(p.out, g, block.batch_row, block.head), out, 1.0F / sum[0], 1.0F / sum[1]);
}

}  // namespace

void portable_attention(NativeStream stream, const AttentionArgs& args) {
  const Shape& q = args.q.shape;
  with_layout(args, [&]<class T, int D, bool kDocuments>() {
    launch_blocks<D>(portable_forward_kernel<T, D, kDocuments>, stream, q, q[2], 2, 1,
                     Forward<T>{Forward<T>::of(args), starts_of(args)});
  });
}

}  // namespace muo::cuda
