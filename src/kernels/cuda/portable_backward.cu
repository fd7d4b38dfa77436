#include "kernels/cuda/portable_tile.h"
#include "kernels/cuda/rows.h"

namespace muo::cuda {

MUO_SHARED_MEMORY

namespace {

using namespace portable;  // NOLINT(google-build-using-namespace): the rest of this file

template <class T>
struct Backward : AttentionGradients<T, std::int64_t> {
  const std::int32_t* starts;
};

// A pair's probability, and the gradient of its unscaled score.
struct Pair {
  float p, ds;
};
template <bool kDocuments>
__device__ Pair pair_of(const Seen<kDocuments>& seen, std::int64_t query, std::int64_t key,
                        float score, float dp, float lse, float dot) {
  if (!visible(seen, query, key)) return {0.0F, 0.0F};
  const float p = exp2f(fmaf(score, seen.g.scale * kLog2E, -lse * kLog2E));
  return {p, p * (dp - dot)};
}

// A block has 32 (D = 256: 16) keys of one key-value head as rows of the tiles, and loops over all
// queries that see one of the keys, for each head of the group in turn. 8 D FLOPs per pair of the
// tiles that touch the band; bound by shared memory.
template <class T, int D, bool kDocuments>
__global__ void __launch_bounds__(kThreads, 2) portable_keys_kernel(Backward<T> p) {
  using L = Layout<D>;
  float* const keys = shared_memory<float>();
  float* const values = keys + L::kRows;
  float* const queries = values + L::kRows;
  float* const douts = queries + L::kRows;
  float* const probabilities = douts + L::kRows;
  float* const gradients = probabilities + L::kPairs;
  const TileBlock<D> block(p.g);
  const Geometry& g = block.g;
  const auto seen = Seen<kDocuments>::of_row(g, p.starts, block.batch_row);
  const std::int64_t row = block.batch_row, kv_head = block.head, first = block.first;
  block.copy(keys, kv_rows_of(p.k, g, row, kv_head), first);
  block.copy(values, kv_rows_of(p.v, g, row, kv_head), first);
  typename L::Sums dk = {}, dv = {};
  const std::int64_t end = min(g.t, first + L::kTile + g.window);
  for (std::int64_t head = kv_head * g.group; head < (kv_head + 1) * g.group; ++head)
    for (std::int64_t query = first; query < end; query += L::kTile) {
      if constexpr (kDocuments)
        if (seen.start(query) >= first + L::kTile) break;
      __syncthreads();
      block.copy(queries, rows_of(p.q, g, row, head), query);
      block.copy(douts, rows_of(p.dout, g, row, head), query);
      __syncthreads();
      typename L::Pairs x, dx;
      block.dots(x, keys, queries);
      block.dots(dx, values, douts);
      for (int c = 0; c < L::kColumns; ++c) {
        const std::int64_t i = query + block.column(c);
        const std::int64_t at = g.row_offset(row, head) + min(i, g.t - 1);
        for (int r = 0; r < 2; ++r) {
          const Pair pair =
              pair_of(seen, i, first + block.row + r, x[r][c], dx[r][c], p.lse[at], p.dots[at]);
          x[r][c] = pair.p;
          dx[r][c] = pair.ds;
        }
      }
      block.template put<T>(probabilities, x);
      block.template put<T>(gradients, dx);
      __syncthreads();
      block.add(dv, probabilities, douts);
      block.add(dk, gradients, queries);
    }
  block.write(kv_rows_of(p.dk, g, row, kv_head), dk, g.scale, g.scale);
  block.write(kv_rows_of(p.dv, g, row, kv_head), dv, 1.0F, 1.0F);
}

// A block has 32 (D = 256: 16) queries of one head as rows of the tiles, and loops over the
// keys and values that they see. 6 D FLOPs per pair of the tiles that touch the band; bound
// by shared memory.
template <class T, int D, bool kDocuments>
__global__ void __launch_bounds__(kThreads, 2) portable_queries_kernel(Backward<T> p) {
  using L = Layout<D>;
  float* const queries = shared_memory<float>();
  float* const douts = queries + L::kRows;
  float* const keys = douts + L::kRows;
  float* const values = keys + L::kRows;
  float* const gradients = values + L::kRows;
  const TileBlock<D> block(p.g);
  const Geometry& g = block.g;
  const auto seen = Seen<kDocuments>::of_row(g, p.starts, block.batch_row);
  const std::int64_t row = block.batch_row, head = block.head, first = block.first;
  const auto k = kv_rows_of(p.k, g, row, head / g.group);
  const auto v = kv_rows_of(p.v, g, row, head / g.group);
  block.copy(queries, rows_of(p.q, g, row, head), first);
  block.copy(douts, rows_of(p.dout, g, row, head), first);
  typename L::Sums dq = {};
  const std::int64_t end = min(g.t, first + L::kTile);
  for (std::int64_t key = block.first_key(seen); key < end; key += L::kTile) {
    __syncthreads();
    block.copy(keys, k, key);
    block.copy(values, v, key);
    __syncthreads();
    typename L::Pairs x, dx;
    block.dots(x, queries, keys);
    block.dots(dx, douts, values);
    for (int r = 0; r < 2; ++r) {
      const std::int64_t i = first + block.row + r;
      const std::int64_t at = g.row_offset(row, head) + min(i, g.t - 1);
      for (int c = 0; c < L::kColumns; ++c)
        dx[r][c] =
            pair_of(seen, i, key + block.column(c), x[r][c], dx[r][c], p.lse[at], p.dots[at]).ds;
    }
    block.template put<T>(gradients, dx);
    __syncthreads();
    block.add(dq, gradients, keys);
  }
  block.write(rows_of(p.dq, g, row, head), dq, g.scale, g.scale);
}

constexpr int kRowLanes = 8;

// Eight lanes per row. Reads dout and out once, 2 sizeof(T) bytes per element, and writes 4 bytes
// per row: bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    attention_dots_kernel(float* dots, const T* dout, const T* out, std::int64_t rows,
                          std::int64_t t, std::int64_t heads, std::int64_t h) {
  const std::int64_t row =
      std::int64_t{blockIdx.x} * (kThreads / kRowLanes) + static_cast<int>(threadIdx.x) / kRowLanes;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  float sum = 0.0F;
  if (row < rows)
    for (std::int64_t d = lane * N; d < h; d += kRowLanes * N)
      sum = dot(load<N>(dout + row * h + d), load<N>(out + row * h + d), sum);
  sum = warp_sum<kRowLanes>(sum);
  if (row < rows && lane == 0)
    dots[(row / heads / t * heads + row % heads) * t + row / heads % t] = sum;
}

}  // namespace

void attention_dots(NativeStream stream, const AttentionBackwardArgs& args) {
  const Shape& q = args.q.shape;
  const std::int64_t rows = q[0] * q[1] * q[2];
  dispatch_packs(args.q.dtype, q[3], {args.dout.data, args.out.data}, [&]<class T, int N>() {
    launch(attention_dots_kernel<T, N>, blocks_for(rows, kThreads / kRowLanes), kThreads, 0, stream,
           args.workspace.as<float>(), args.dout.as<T>(), args.out.as<T>(), rows, q[1], q[2], q[3]);
  });
}

void portable_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  attention_dots(stream, args);
  const Shape& q = args.q.shape;
  with_layout(args, [&]<class T, int D, bool kDocuments>() {
    const Backward<T> p{Backward<T>::of(args), starts_of(args)};
    launch_blocks<D>(portable_keys_kernel<T, D, kDocuments>, stream, q, args.k.shape[2], 4, 2, p);
    launch_blocks<D>(portable_queries_kernel<T, D, kDocuments>, stream, q, q[2], 4, 1, p);
  });
}

}  // namespace muo::cuda
