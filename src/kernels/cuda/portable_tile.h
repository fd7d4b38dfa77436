#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/sums.h"
#include "kernels/cuda/visibility.h"
#include "kernels/dispatch.h"
#include "runtime/cuda/vector.h"

// Building blocks of attention in fp32 arithmetic, for fp32 or bf16 tensors and any head size. It
// exists for parity with the host and for problems that the tensor-core kernels do not support; the
// code is therefore short rather than fast.
namespace muo::cuda::portable {

inline constexpr int kThreads = 128;

using Geometry = AttentionGeometry<std::int64_t>;
template <bool kDocuments>
using Seen = Visibility<std::int64_t, kDocuments>;
// Queries beyond the end of the row use the document start of the last query.
template <bool kDocuments>
__device__ __forceinline__ bool visible(const Seen<kDocuments>& seen, std::int64_t query,
                                        std::int64_t key) {
  if constexpr (kDocuments)
    return seen.g.visible(query, key) && key >= seen.start(min(query, seen.g.t - 1));
  else
    return seen.visible(query, key);
}

// A tile of kTile x kTile pairs. A thread has two adjacent rows and every kAcross-th column; in
// rows of D features it has every kAcross-th group of four. The threads of a row are adjacent.
template <int D>
struct Layout {
  static constexpr int kTile = D <= 128 ? 32 : 16;
  static constexpr int kAcross = 2 * kThreads / kTile;
  static constexpr int kColumns = kTile / kAcross;
  static constexpr int kGroups = D / 4 / kAcross;
  static constexpr int kStride = D + 4;          // of rows in shared memory; avoids bank conflicts
  static constexpr int kPairStride = kTile + 1;  // stride of rows of probabilities
  static constexpr int kRows = kTile * kStride;
  static constexpr int kPairs = kTile * kPairStride;
  static_assert(kColumns * kAcross == kTile && kGroups * kAcross * 4 == D);

  using Pairs = float[2][kColumns];   // a thread's part of a tile of pairs
  using Sums = float[2][kGroups][4];  // a thread's part of rows of features
};

// Rounds P or dS as an operand, for tensors of T.
template <class T>
__device__ float operand(float x) {
  return to_float(from_float<T>(x));
}

// The rows of one head of a tensor.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
};
template <class T>
__device__ HeadRows<T> rows_of(T* tensor, const Geometry& g, std::int64_t row, std::int64_t head) {
  return {tensor + g.offset(row, head), g.stride()};
}
template <class T>
__device__ HeadRows<T> kv_rows_of(T* tensor, const Geometry& g, std::int64_t row,
                                  std::int64_t kv_head) {
  const std::int64_t stride = g.heads / g.group * g.h;  // kv_stride() would take 16 more registers
  return {tensor + row * g.t * stride + kv_head * g.h, stride};
}

// A thread's part of a block. The block has kTile rows, queries or keys, of one head, and pairs
// them with the tiles of the other side one after another.
template <int D>
struct TileBlock {
  using L = Layout<D>;
  const Geometry& g;
  std::int64_t first = std::int64_t{blockIdx.x} * L::kTile;  // first row of the block
  std::int64_t head = blockIdx.y, batch_row = blockIdx.z;
  int row = static_cast<int>(threadIdx.x) / L::kAcross * 2;  // first of the thread's two rows
  int across = static_cast<int>(threadIdx.x) % L::kAcross;

  __device__ explicit TileBlock(const Geometry& geometry) : g(geometry) {}

  __device__ int column(int c) const { return across + c * L::kAcross; }
  // The keys that the block's queries see are in the tiles from here to min(t, first + kTile).
  template <bool kDocuments>
  __device__ std::int64_t first_key(const Seen<kDocuments>& seen) const {
    return seen.first_key(first) / L::kTile * L::kTile;
  }

  // Copies rows [begin, begin + kTile) of a head, widened; zeros from row t on and
  // from column h on.
  template <class T>
  __device__ void copy(float* to, const HeadRows<T>& from, std::int64_t begin) const {
    for (int i = static_cast<int>(threadIdx.x); i < L::kTile * D; i += kThreads) {
      const int r = i / D, d = i % D;
      to[r * L::kStride + d] =
          begin + r < g.t && d < g.h ? to_float(from.data[(begin + r) * from.stride + d]) : 0.0F;
    }
  }

  // sums[i][c] <- dot product of row `row + i` of x and row `column(c)` of y.
  __device__ void dots(typename L::Pairs& sums, const float* x, const float* y) const {
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

  // sums += pairs * y, for rows `row` and `row + 1` of the pairs.
  __device__ void add(typename L::Sums& sums, const float* pairs, const float* y) const {
    for (int j = 0; j < L::kTile; ++j) {
      const float p[2] = {pairs[row * L::kPairStride + j], pairs[(row + 1) * L::kPairStride + j]};
#pragma unroll
      for (int n = 0; n < L::kGroups; ++n) {
        const float4 b =
            *reinterpret_cast<const float4*>(y + j * L::kStride + 4 * (across + n * L::kAcross));
        const float four[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[i][n][e] = fmaf(p[i], four[e], sums[i][n][e]);
      }
    }
  }

  // Stores pairs as an operand of add().
  template <class T>
  __device__ void put(float* pairs, const typename L::Pairs& x) const {
    for (int i = 0; i < 2; ++i)
      for (int c = 0; c < L::kColumns; ++c)
        pairs[(row + i) * L::kPairStride + column(c)] = operand<T>(x[i][c]);
  }

  // Writes the thread's part of the block's rows, each multiplied by its factor.
  template <class T>
  __device__ void write(const HeadRows<T>& to, const typename L::Sums& sums, float factor0,
                        float factor1) const {
    for (int i = 0; i < 2; ++i) {
      if (first + row + i >= g.t) continue;
      for (int n = 0; n < L::kGroups; ++n)
        for (int e = 0; e < 4; ++e) {
          const int d = 4 * (across + n * L::kAcross) + e;
          if (d < g.h)
            to.data[(first + row + i) * to.stride + d] =
                from_float<T>(sums[i][n][e] * (i == 0 ? factor0 : factor1));
        }
    }
  }
};

// Launches blocks for all rows of `heads` heads, each with shared memory for `tiles` tiles of rows
// and `pairs` tiles of pairs.
template <int D, class Tensors>
void launch_blocks(void (*kernel)(Tensors), NativeStream stream, const Shape& q, std::int64_t heads,
                   int tiles, int pairs, const Tensors& tensors) {
  using L = Layout<D>;
  launch(
      kernel,
      dim3(blocks_for(q[1], L::kTile), static_cast<unsigned>(heads), static_cast<unsigned>(q[0])),
      kThreads, (tiles * L::kRows + pairs * L::kPairs) * sizeof(float), stream, tensors);
}

// Calls body.operator()<T, D, kDocuments>() with the type of the tensors and the narrowest layout
// that holds their heads.
template <class Args, class Body>
void with_layout(const Args& args, const Body& body) {
  dispatch(args.q.dtype, [&]<class T>() {
    with_head_size<32, 64, 128, 256>(args.q.shape[3], [&]<int D>() {
      with_documents(args,
                     [&]<bool kDocuments>() { body.template operator()<T, D, kDocuments>(); });
    });
  });
}

}  // namespace muo::cuda::portable
