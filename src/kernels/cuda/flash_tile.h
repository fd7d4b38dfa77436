#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/visibility.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/ptx.h"
#include "runtime/cuda/vector.h"

// Building blocks of the tensor-core kernels of attention. A warp computes 16 R rows, with R = 1 or
// 2; each fragment of the right operand that is read from shared memory is used for R products.
namespace muo::cuda::flash {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;
using Geometry = AttentionGeometry<int>;  // scale is above 0
template <bool kDocuments>
using Seen = Visibility<int, kDocuments>;

// Arguments of the kernels of a backward pass.
struct Backward : AttentionGradients<BF16, int> {
  float per_scale;  // 1 / scale
  int blocks;       // number of key or query blocks
  const std::int32_t* starts;
};

// Rows of D bf16 in shared memory, without padding. The 16-byte chunks of a row are permuted in
// groups of eight or four, depending on the row's number, such that the eight rows of a matrix that
// is loaded are in different banks.
template <int D>
struct Tile {
  static constexpr int kChunks = D / 8;
  static constexpr int kGroup = kChunks % 8 == 0 ? 8 : 4;
  static constexpr int kRowBytes = 2 * D;

  std::byte* data;
  SharedAddress address;

  __device__ __forceinline__ explicit Tile(std::byte* p) : data(p), address(shared_address(p)) {}

  static __device__ __forceinline__ int offset(int row, int chunk) {
    const int twist = kGroup == 8 ? row % 8 : row / 2 % 4;
    return row * kRowBytes + (chunk ^ twist) * 16;
  }
  // Offset of a lane's part of a matrix that lies `rows` and `chunks` after a matrix in chunk 0 or
  // 1, for which the offset of the lane's part is `lane`. `lane ^ ...` has few distinct values;
  // everything else is an immediate of the instruction.
  static __device__ __forceinline__ int step(int lane, int rows, int chunks) {
    return (lane ^ chunks % kGroup * 16) + (chunks / kGroup * kGroup * 16) + rows * kRowBytes;
  }
  __device__ __forceinline__ SharedAddress at(int lane, int rows, int chunks) const {
    return address + step(lane, rows, chunks);
  }
};

// Starts copies of rows [first, first + kRows) of a head into a tile; the whole block calls it.
// Row 0 is at from + offset; the offset is a separate argument so that tensors of one shape share
// it. Rows from t on and columns from h on become zeros. A thread copies one chunk of every
// kStep-th row; because kStep is a multiple of eight, all its offsets in the tile are one
// variable plus constants.
template <int kRows, int D>
__device__ __forceinline__ void copy_rows(const Tile<D>& to, const BF16* from, std::int64_t offset,
                                          std::int64_t stride, int first, int t, int h) {
  constexpr int kAcross = D <= 32 ? 4 : D <= 64 ? 8 : 16;
  constexpr int kStep = kThreads / kAcross;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kAcross;
  const int chunk = static_cast<int>(threadIdx.x) % kAcross;
  if (kAcross > Tile<D>::kChunks && chunk >= Tile<D>::kChunks) return;
  const SharedAddress target = to.address + Tile<D>::offset(row, chunk);
  const BF16* source = from + (offset + (first + row) * stride + chunk * 8);
  const int rows = chunk * 8 < h ? t - first - row : 0;
#pragma unroll
  for (int n = 0; n < kRows; n += kStep) {
    copy_async_16(target + n * Tile<D>::kRowBytes, source, n < rows);
    source += kStep * stride;
  }
}

// Sums or scores of 16 R rows and 8 N columns: x[r][n][2 half + c] is row 8 half + lane / 4 and
// column 2 (lane % 4) + c of tile (r, n).
template <int R, int N>
struct Accumulators {
  float x[R][N][4];

  // Calls body(r, n, e) for every number of the lane.
  template <class Body>
  static __device__ __forceinline__ void each(const Body& body) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          body(r, n, e);
  }
  __device__ __forceinline__ void clear() {
    each([this](int r, int n, int e) { x[r][n][e] = 0.0F; });
  }
};

// Calls body(r, half) for each of the lane's rows, 8 half + lane / 4 of tile r.
template <int R, class Body>
__device__ __forceinline__ void for_rows(const Body& body) {
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      body(r, half);
}

// Left operands of 16 R rows and 16 K columns.
template <int R, int K>
struct Operand {
  std::uint32_t x[R][K][4];
};

// The warp's number in the block. The shuffle lets ptxas infer that it is uniform, so that values
// that depend on it can be kept in uniform registers.
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 32, 0));
}

// sums += left right^T, for 16 R rows from `left_first` on and 8 N rows from `right_first` on.
template <int R, int N, int D>
__device__ __forceinline__ void add_rows(Accumulators<R, N>& sums, const Tile<D>& left,
                                         int left_first, const Tile<D>& right, int right_first) {
  int left_lane = Tile<D>::offset(lane_id() % 16, lane_id() / 16);
  int right_lane = Tile<D>::offset(lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2);
  compute_here(left_lane);
  compute_here(right_lane);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    std::uint32_t a[R][4];
#pragma unroll
    for (int r = 0; r < R; ++r)
      load_matrices(a[r], left.at(left_lane, left_first + 16 * r, 2 * k));
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, right.at(right_lane, right_first + 8 * n, 2 * k));
#pragma unroll
      for (int r = 0; r < R; ++r) {
        multiply_add(sums.x[r][n], a[r], b[0], b[1]);
        multiply_add(sums.x[r][n + 1], a[r], b[2], b[3]);
      }
    }
  }
}

// Sets the scores of invisible pairs to -infinity. If kRowsAreQueries, rows from `row` on are
// queries and columns from `column` on are keys, else vice versa.
template <bool kRowsAreQueries, class Seen, int R, int N>
__device__ __forceinline__ void mask(Accumulators<R, N>& scores, const Seen& seen, int row,
                                     int column) {
  int lane = lane_id();
  compute_here(lane);
  row += lane / 4;
  column += lane % 4 * 2;
  scores.each([&](int r, int n, int e) {
    const int x = row + 16 * r + e / 2 * 8, y = column + 8 * n + e % 2;
    if (!(kRowsAreQueries ? seen.visible(x, y) : seen.visible(y, x))) scores.x[r][n][e] = -INFINITY;
  });
}

// Bytes of shared memory for the document starts of kQueries queries; there are no
// registers left for them.
template <bool kDocuments, int kQueries>
constexpr int kStartBytes = kDocuments ? kQueries* int{sizeof(std::int32_t)} : 0;

// Copies the document starts of the queries from `first` on to `to`; the whole block calls it. The
// returned visibility can be used after the next barrier.
template <bool kDocuments, int kQueries>
__device__ __forceinline__ Seen<kDocuments> copy_starts(const Geometry& g, const std::int32_t* from,
                                                        int row, int first, std::byte* to) {
  static_assert(kQueries == kThreads);
  auto* const starts = reinterpret_cast<std::int32_t*>(to);
  if constexpr (kDocuments)
    starts[threadIdx.x] =
        Seen<true>::of_row(g, from, row).start(min(first + static_cast<int>(threadIdx.x), g.t - 1));
  return {g, starts, first};
}

// sums += left right, for 16 K rows of `right` from `first` on.
template <int R, int K, int D>
__device__ __forceinline__ void add_product(Accumulators<R, D / 8>& sums, const Operand<R, K>& left,
                                            const Tile<D>& right, int first) {
  int lane = Tile<D>::offset(lane_id() % 16, lane_id() / 16);
  compute_here(lane);
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      std::uint32_t b[4];
      load_matrices_transposed(b, right.at(lane, first + 16 * k, n));
#pragma unroll
      for (int r = 0; r < R; ++r) {
        multiply_add(sums.x[r][n], left.x[r][k], b[0], b[1]);
        multiply_add(sums.x[r][n + 1], left.x[r][k], b[2], b[3]);
      }
    }
}

// Rounds to bf16. Two adjacent tiles of accumulators have the register layout of a left operand.
template <int R, int N>
__device__ __forceinline__ Operand<R, N / 2> operand(const Accumulators<R, N>& from) {
  Operand<R, N / 2> a;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        a.x[r][n / 2][n % 2 * 2 + half] =
            round_pair(from.x[r][n][2 * half], from.x[r][n][2 * half + 1]);
  return a;
}

// Reductions over a row, i.e. over the four lanes that hold it.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

// Writes the warp's rows, each multiplied by factor(r, half), to rows [first, ...) of a head.
// `tile` is scratch; no other warp may use its rows from `own` on.
template <int R, int D, class Factor>
__device__ __forceinline__ void write_rows(const Accumulators<R, D / 8>& sums, const Tile<D>& tile,
                                           int own, BF16* to, std::int64_t stride, int first, int t,
                                           int h, const Factor& factor) {
  constexpr int kChunks = Tile<D>::kChunks;
  __syncwarp();
  for_rows<R>([&](int r, int half) {
    const float f = factor(r, half);
    const int row = own + 16 * r + 8 * half + lane_id() / 4;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(tile.data + Tile<D>::offset(row, n) + lane_id() % 4 * 4) =
          round_pair(sums.x[r][n][2 * half] * f, sums.x[r][n][2 * half + 1] * f);
  });
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 16 * R * kChunks / 32; ++n) {
    const int i = n * 32 + lane_id();
    const int row = i / kChunks, chunk = i % kChunks;
    if (first + row < t && chunk * 8 < h)
      *reinterpret_cast<uint4*>(to + (first + row) * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile.data + Tile<D>::offset(own + row, chunk));
  }
}

// Calls body.operator()<D>() with the narrowest tile that holds heads of size h.
template <class Body>
void with_tile(std::int64_t h, const Body& body) {
  with_head_size<32, 64, 96, 128>(h, body);
}

}  // namespace muo::cuda::flash
