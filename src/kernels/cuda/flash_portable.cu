#include <cmath>

#include "kernels/cuda/block.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/flash.h"
#include "runtime/cuda/vector.h"

// Attention in fp32 arithmetic, of fp32 or bf16, for any head size. It exists for parity with the
// host and for what the tensor-core kernels do not take, so it is short rather than fast.
namespace muo::cuda {

MUO_DYNAMIC_SHARED(float, flash_portable_shared)

// Here, as g++ 12 takes such a declaration in an unnamed namespace for one that is initialised.
static __device__ __forceinline__ float* shared_memory() {
  extern __shared__ __align__(16) float flash_portable_shared[];
  return flash_portable_shared;
}

namespace {

constexpr int kThreads = 128;
constexpr float kLog2E = 1.44269504088896340736F;
constexpr float kLn2 = 0.693147180559945309417F;

// A tile of kTile x kTile pairs: a thread has two neighbouring rows and every kAcross-th column; of
// a row of D features it has every kAcross-th group of four. The threads of a row are neighbours.
template <int D>
struct Layout {
  static constexpr int kTile = D <= 128 ? 32 : 16;
  static constexpr int kAcross = 2 * kThreads / kTile;
  static constexpr int kColumns = kTile / kAcross;
  static constexpr int kGroups = D / 4 / kAcross;
  static constexpr int kStride = D + 4;     // of rows in shared memory: keeps columns apart
  static constexpr int kPairs = kTile + 1;  // of rows of probabilities
  static constexpr int kRows = kTile * kStride;
  static_assert(kColumns * kAcross == kTile && kGroups * kAcross * 4 == D);
};

struct Geometry {
  std::int64_t t, heads, group, h, window;
  float scale;

  __device__ std::int64_t stride() const { return heads * h; }
  __device__ std::int64_t kv_stride() const { return heads / group * h; }
  __device__ std::int64_t offset(std::int64_t row, std::int64_t head) const {
    return row * t * stride() + head * h;
  }
  __device__ std::int64_t kv_offset(std::int64_t row, std::int64_t kv_head) const {
    return row * t * kv_stride() + kv_head * h;
  }
  __device__ bool visible(std::int64_t query, std::int64_t key) const {
    return 0 <= query - key && query - key <= window;
  }
};

// P or dS as an operand, for tensors of T.
template <class T>
__device__ float operand(float x) {
  return to_float(from_float<T>(x));
}

// Rows [first, first + kTile) of a head, widened; zeros from row t and column h on.
template <int D, class T>
__device__ void copy_rows(float* to, const T* from, std::int64_t stride, std::int64_t first,
                          std::int64_t t, std::int64_t h) {
  using L = Layout<D>;
  for (int i = static_cast<int>(threadIdx.x); i < L::kTile * D; i += kThreads) {
    const int row = i / D, d = i % D;
    to[row * L::kStride + d] =
        first + row < t && d < h ? to_float(from[(first + row) * stride + d]) : 0.0F;
  }
}

// This thread's part of a tile.
template <int D>
struct Part {
  using L = Layout<D>;
  int row = static_cast<int>(threadIdx.x) / L::kAcross * 2;
  int across = static_cast<int>(threadIdx.x) % L::kAcross;

  __device__ int column(int c) const { return across + c * L::kAcross; }

  // sums[i][c] <- dot product of row `row + i` of x and row `column(c)` of y.
  __device__ void dots(float (&sums)[2][L::kColumns], const float* x, const float* y) const {
    for (int c = 0; c < L::kColumns; ++c)
      sums[0][c] = sums[1][c] = 0.0F;
    for (int d = 0; d < D; d += 4) {
      const auto four = [d](const float* rows, int r) {
        return *reinterpret_cast<const float4*>(rows + r * L::kStride + d);
      };
      const float4 a[2] = {four(x, row), four(x, row + 1)};
#pragma unroll
      for (int c = 0; c < L::kColumns; ++c) {
        const float4 b = four(y, column(c));
#pragma unroll
        for (int i = 0; i < 2; ++i)
          sums[i][c] = fmaf(a[i].w, b.w,
                            fmaf(a[i].z, b.z, fmaf(a[i].y, b.y, fmaf(a[i].x, b.x, sums[i][c]))));
      }
    }
  }

  // sums += pairs y, for rows `row` and `row + 1` of the pairs.
  __device__ void add(float (&sums)[2][L::kGroups][4], const float* pairs, const float* y) const {
    for (int j = 0; j < L::kTile; ++j) {
      const float p[2] = {pairs[row * L::kPairs + j], pairs[(row + 1) * L::kPairs + j]};
#pragma unroll
      for (int n = 0; n < L::kGroups; ++n) {
        const float4 b =
            *reinterpret_cast<const float4*>(y + j * L::kStride + 4 * (across + n * L::kAcross));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sums[i][n][0] = fmaf(p[i], b.x, sums[i][n][0]);
          sums[i][n][1] = fmaf(p[i], b.y, sums[i][n][1]);
          sums[i][n][2] = fmaf(p[i], b.z, sums[i][n][2]);
          sums[i][n][3] = fmaf(p[i], b.w, sums[i][n][3]);
        }
      }
    }
  }

  // Stores pairs as an operand of add().
  template <class T>
  __device__ void put(float* pairs, const float (&x)[2][L::kColumns]) const {
    for (int i = 0; i < 2; ++i)
      for (int c = 0; c < L::kColumns; ++c)
        pairs[(row + i) * L::kPairs + column(c)] = operand<T>(x[i][c]);
  }

  // Writes rows [first + row, ...) of a head.
  template <class T>
  __device__ void write(T* to, const float (&sums)[2][L::kGroups][4], std::int64_t stride,
                        std::int64_t first, std::int64_t t, std::int64_t h, float factor0,
                        float factor1) const {
    for (int i = 0; i < 2; ++i) {
      if (first + row + i >= t) continue;
      for (int n = 0; n < L::kGroups; ++n)
        for (int e = 0; e < 4; ++e) {
          const int d = 4 * (across + n * L::kAcross) + e;
          if (d < h)
            to[(first + row + i) * stride + d] =
                from_float<T>(sums[i][n][e] * (i == 0 ? factor0 : factor1));
        }
    }
  }
};

// Over the neighbouring lanes that share a row.
template <int kAcross, class Combine>
__device__ float across_row(float x, const Combine& combine) {
  for (int step = kAcross / 2; step > 0; step /= 2)
    x = combine(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

template <int kGroups>
__device__ void clear(float (&sums)[2][kGroups][4]) {
  for (auto& row : sums)
    for (auto& four : row)
      for (float& x : four)
        x = 0.0F;
}

template <class T>
struct Forward {
  T* out;
  float* lse;
  const T* q;
  const T* k;
  const T* v;
  Geometry g;
};

// A block has 32 (D = 256: 16) queries of one head; keys, then values, of one tile after the other
// pass through one buffer. 4 D FLOPs per pair of the tiles that touch the band; bound by shared
// memory, at 0.4 (dots) and 0.6 (add) 16-byte loads per 4 FMAs.
template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) portable_forward_kernel(Forward<T> p) {
  using L = Layout<D>;
  float* const queries = shared_memory();
  float* const keys = queries + L::kRows;
  float* const pairs = keys + L::kRows;
  const Geometry& g = p.g;
  const std::int64_t first = std::int64_t{blockIdx.x} * L::kTile;
  const std::int64_t head = blockIdx.y, row = blockIdx.z;
  const T* k = p.k + g.kv_offset(row, head / g.group);
  const T* v = p.v + g.kv_offset(row, head / g.group);
  const Part<D> part;
  copy_rows<D>(queries, p.q + g.offset(row, head), g.stride(), first, g.t, g.h);

  // Finite, so that a row which has seen no key yet does not subtract infinities.
  float maximum[2] = {-3.0e38F, -3.0e38F};
  float sum[2] = {0.0F, 0.0F};
  float out[2][L::kGroups][4];
  clear(out);
  const float scale = g.scale * kLog2E;
  const std::int64_t end = min(g.t, first + L::kTile);
  for (std::int64_t key = max(std::int64_t{0}, first - g.window) / L::kTile * L::kTile; key < end;
       key += L::kTile) {
    __syncthreads();
    copy_rows<D>(keys, k, g.kv_stride(), key, g.t, g.h);
    __syncthreads();
    float scores[2][L::kColumns];
    part.dots(scores, queries, keys);
    for (int i = 0; i < 2; ++i) {
      float highest = maximum[i];
      for (int c = 0; c < L::kColumns; ++c) {
        float& s = scores[i][c];
        s = g.visible(first + part.row + i, key + part.column(c)) ? s * scale : -INFINITY;
        highest = fmaxf(highest, s);
      }
      highest = across_row<L::kAcross>(highest, [](float a, float b) { return fmaxf(a, b); });
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
    part.template put<T>(pairs, scores);
    __syncthreads();  // nobody needs the keys, and the pairs are there
    copy_rows<D>(keys, v, g.kv_stride(), key, g.t, g.h);
    __syncthreads();
    part.add(out, pairs, keys);
  }
  for (int i = 0; i < 2; ++i) {
    sum[i] = across_row<L::kAcross>(sum[i], [](float a, float b) { return a + b; });
    if (part.across == 0 && first + part.row + i < g.t)
      p.lse[(row * g.heads + head) * g.t + first + part.row + i] =
          fmaf(maximum[i], kLn2, logf(sum[i]));
  }
  part.write(p.out + g.offset(row, head), out, g.stride(), first, g.t, g.h, 1.0F / sum[0],
             1.0F / sum[1]);
}

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

template <class Args>
Geometry geometry_of(const Args& args) {
  const Shape& q = args.q.shape;
  return {.t = q[1],
          .heads = q[2],
          .group = q[2] / args.k.shape[2],
          .h = q[3],
          .window = std::min(args.window, q[1]),
          .scale = args.scale};
}

template <class Body>
void with_head_size(std::int64_t h, const Body& body) {
  if (h <= 32) return body.template operator()<32>();
  if (h <= 64) return body.template operator()<64>();
  if (h <= 128) return body.template operator()<128>();
  body.template operator()<256>();
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

void portable_attention(NativeStream stream, const AttentionArgs& args) {
  const Shape& q = args.q.shape;
  dispatch(args.q.dtype, [&]<class T>() {
    with_head_size(q[3], [&]<int D>() {
      using L = Layout<D>;
      launch(portable_forward_kernel<T, D>,
             dim3(blocks_for(q[1], L::kTile), static_cast<unsigned>(q[2]),
                  static_cast<unsigned>(q[0])),
             kThreads, (2 * L::kRows + L::kTile * L::kPairs) * sizeof(float), stream,
             Forward<T>{.out = args.out.as<T>(),
                        .lse = args.lse.as<float>(),
                        .q = args.q.as<T>(),
                        .k = args.k.as<T>(),
                        .v = args.v.as<T>(),
                        .g = geometry_of(args)});
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
