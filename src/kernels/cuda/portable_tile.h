#pragma once

#include <algorithm>

#include "kernels/cuda/block.h"
#include "kernels/cuda/flash.h"
#include "runtime/cuda/vector.h"

// What attention in fp32 arithmetic is made of: of fp32 or bf16, for any head size. It exists for
// parity with the host and for what the tensor-core kernels do not take, so it is short rather than
// fast.
namespace muo::cuda::portable {

inline constexpr int kThreads = 128;
inline constexpr float kLog2E = 1.44269504088896340736F;

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

}  // namespace muo::cuda::portable
