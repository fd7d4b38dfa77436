#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/portable_tile.h"

namespace muo::cuda {

MUO_DYNAMIC_SHARED(float, portable_backward_shared)

// Here, as g++ 12 takes such a declaration in an unnamed namespace for one that is initialised.
static __device__ __forceinline__ float* shared_memory() {
  extern __shared__ __align__(16) float portable_backward_shared[];
  return portable_backward_shared;
}

namespace {

using namespace portable;  // NOLINT(google-build-using-namespace): the rest of this file

template <class T>
struct Backward {
  T* dq;
  T* dk;
  T* dv;
  const T* dout;
  const float* lse;
  const float* dots;
  const T* q;
  const T* k;
  const T* v;
  Geometry g;
};

// Of a pair: the probability, and the gradient of the score before it is scaled.
struct Pair {
  float p, ds;
};
__device__ Pair pair_of(const Geometry& g, std::int64_t query, std::int64_t key, float score,
                        float dp, float lse, float dot) {
  if (!g.visible(query, key)) return {0.0F, 0.0F};
  const float p = exp2f(fmaf(score, g.scale * kLog2E, -lse * kLog2E));
  return {p, p * (dp - dot)};
}

// A block has 32 (D = 256: 16) keys of one key-value head, rows of the tiles; all queries that see
// one of them pass, of each head of the group in turn. 8 D FLOPs per pair of the tiles that touch
// the band; bound by shared memory.
template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) portable_keys_kernel(Backward<T> p) {
  using L = Layout<D>;
  float* const keys = shared_memory();
  float* const values = keys + L::kRows;
  float* const queries = values + L::kRows;
  float* const douts = queries + L::kRows;
  float* const probabilities = douts + L::kRows;
  float* const gradients = probabilities + L::kTile * L::kPairs;
  const Geometry& g = p.g;
  const std::int64_t first = std::int64_t{blockIdx.x} * L::kTile;
  const std::int64_t kv_head = blockIdx.y, row = blockIdx.z;
  const Part<D> part;
  copy_rows<D>(keys, p.k + g.kv_offset(row, kv_head), g.kv_stride(), first, g.t, g.h);
  copy_rows<D>(values, p.v + g.kv_offset(row, kv_head), g.kv_stride(), first, g.t, g.h);
  float dk[2][L::kGroups][4];
  float dv[2][L::kGroups][4];
  clear(dk);
  clear(dv);
  const std::int64_t end = min(g.t, first + L::kTile + g.window);
  for (std::int64_t head = kv_head * g.group; head < (kv_head + 1) * g.group; ++head)
    for (std::int64_t query = first; query < end; query += L::kTile) {
      __syncthreads();
      copy_rows<D>(queries, p.q + g.offset(row, head), g.stride(), query, g.t, g.h);
      copy_rows<D>(douts, p.dout + g.offset(row, head), g.stride(), query, g.t, g.h);
      __syncthreads();
      float x[2][L::kColumns];
      float dx[2][L::kColumns];
      part.dots(x, keys, queries);
      part.dots(dx, values, douts);
      for (int c = 0; c < L::kColumns; ++c) {
        const std::int64_t i = query + part.column(c);
        const std::int64_t at = (row * g.heads + head) * g.t + min(i, g.t - 1);
        for (int r = 0; r < 2; ++r) {
          const Pair pair =
              pair_of(g, i, first + part.row + r, x[r][c], dx[r][c], p.lse[at], p.dots[at]);
          x[r][c] = pair.p;
          dx[r][c] = pair.ds;
        }
      }
      part.template put<T>(probabilities, x);
      part.template put<T>(gradients, dx);
      __syncthreads();
      part.add(dv, probabilities, douts);
      part.add(dk, gradients, queries);
    }
  part.write(p.dk + g.kv_offset(row, kv_head), dk, g.kv_stride(), first, g.t, g.h, g.scale,
             g.scale);
  part.write(p.dv + g.kv_offset(row, kv_head), dv, g.kv_stride(), first, g.t, g.h, 1.0F, 1.0F);
}

// A block has 32 (D = 256: 16) queries of one head, rows of the tiles; the keys and values that
// they see pass. 6 D FLOPs per pair of the tiles that touch the band; bound by shared memory.
template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) portable_queries_kernel(Backward<T> p) {
  using L = Layout<D>;
  float* const queries = shared_memory();
  float* const douts = queries + L::kRows;
  float* const keys = douts + L::kRows;
  float* const values = keys + L::kRows;
  float* const gradients = values + L::kRows;
  const Geometry& g = p.g;
  const std::int64_t first = std::int64_t{blockIdx.x} * L::kTile;
  const std::int64_t head = blockIdx.y, row = blockIdx.z;
  const T* k = p.k + g.kv_offset(row, head / g.group);
  const T* v = p.v + g.kv_offset(row, head / g.group);
  const Part<D> part;
  copy_rows<D>(queries, p.q + g.offset(row, head), g.stride(), first, g.t, g.h);
  copy_rows<D>(douts, p.dout + g.offset(row, head), g.stride(), first, g.t, g.h);
  float dq[2][L::kGroups][4];
  clear(dq);
  const std::int64_t end = min(g.t, first + L::kTile);
  for (std::int64_t key = max(std::int64_t{0}, first - g.window) / L::kTile * L::kTile; key < end;
       key += L::kTile) {
    __syncthreads();
    copy_rows<D>(keys, k, g.kv_stride(), key, g.t, g.h);
    copy_rows<D>(values, v, g.kv_stride(), key, g.t, g.h);
    __syncthreads();
    float x[2][L::kColumns];
    float dx[2][L::kColumns];
    part.dots(x, queries, keys);
    part.dots(dx, douts, values);
    for (int r = 0; r < 2; ++r) {
      const std::int64_t i = first + part.row + r;
      const std::int64_t at = (row * g.heads + head) * g.t + min(i, g.t - 1);
      for (int c = 0; c < L::kColumns; ++c)
        dx[r][c] = pair_of(g, i, key + part.column(c), x[r][c], dx[r][c], p.lse[at], p.dots[at]).ds;
    }
    part.template put<T>(gradients, dx);
    __syncthreads();
    part.add(dq, gradients, keys);
  }
  part.write(p.dq + g.offset(row, head), dq, g.stride(), first, g.t, g.h, g.scale, g.scale);
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
  sum = across_row<kRowLanes>(sum, [](float a, float b) { return a + b; });
  if (row < rows && lane == 0)
    dots[(row / heads / t * heads + row % heads) * t + row / heads % t] = sum;
}

}  // namespace

void attention_dots(NativeStream stream, const AttentionBackwardArgs& args) {
  const Shape& q = args.q.shape;
  const std::int64_t rows = q[0] * q[1] * q[2];
  dispatch(args.q.dtype, [&]<class T>() {
    with_width<T>(vectors_fit<T>(q[3], {args.dout.data, args.out.data}), [&]<int N>() {
      launch(attention_dots_kernel<T, N>, blocks_for(rows, kThreads / kRowLanes), kThreads, 0,
             stream, args.workspace.as<float>(), args.dout.as<T>(), args.out.as<T>(), rows, q[1],
             q[2], q[3]);
    });
  });
}

void portable_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  attention_dots(stream, args);
  const Shape& q = args.q.shape;
  dispatch(args.q.dtype, [&]<class T>() {
    const Backward<T> p{.dq = args.dq.as<T>(),
                        .dk = args.dk.as<T>(),
                        .dv = args.dv.as<T>(),
                        .dout = args.dout.as<T>(),
                        .lse = args.lse.as<float>(),
                        .dots = args.workspace.as<float>(),
                        .q = args.q.as<T>(),
                        .k = args.k.as<T>(),
                        .v = args.v.as<T>(),
                        .g = geometry_of(args)};
    with_head_size(q[3], [&]<int D>() {
      using L = Layout<D>;
      const auto grid = [&](std::int64_t heads) {
        return dim3(blocks_for(q[1], L::kTile), static_cast<unsigned>(heads),
                    static_cast<unsigned>(q[0]));
      };
      constexpr std::size_t kTiles = 4 * L::kRows * sizeof(float);
      constexpr std::size_t kPairs = L::kTile * L::kPairs * sizeof(float);
      launch(portable_keys_kernel<T, D>, grid(args.k.shape[2]), kThreads, kTiles + 2 * kPairs,
             stream, p);
      launch(portable_queries_kernel<T, D>, grid(q[2]), kThreads, kTiles + kPairs, stream, p);
    });
  });
}

}  // namespace muo::cuda
