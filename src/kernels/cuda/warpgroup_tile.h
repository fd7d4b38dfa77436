#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_tile.h"
#include "runtime/cuda/warpgroup.h"

// What kernels of attention by products of warpgroups are made of: tiles that a thread has copied
// while others are computed with, and what is done to a gradient before it is written.
namespace muo::cuda::warpgroup {

using flash::Geometry;

inline constexpr int kTile = 64;   // rows that arrive at once, and of a warpgroup
inline constexpr int kStages = 3;  // tiles in shared memory: two arrive while one is computed with
using Sums = flash::Accumulators<1, kTile / 8>;
template <int D>
using Gradients = flash::Accumulators<1, D / 8>;

// Two neighbouring bf16.
__device__ __forceinline__ float2 widened_pair(const void* p) {
  const auto x = *static_cast<const std::uint32_t*>(p);
  return {__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000U)};
}

// Rows of D bf16 in shared memory as operands of warpgroups, 64 columns to a panel.
template <int D, int kRows>
struct Panels {
  static constexpr int kPanelBytes = kRows * 128;
  static constexpr int kBytes = kRows * 2 * D;

  std::byte* data;
  SharedAddress address;

  __device__ __forceinline__ explicit Panels(std::byte* p) : data(p), address(shared_address(p)) {}

  // Operands whose sums run along rows from `first` on, or along the columns of all rows.
  __device__ __forceinline__ SharedMatrix rows_from(int first) const {
    return along_rows(address + first * 128);
  }
  __device__ __forceinline__ SharedMatrix columns() const {
    return along_columns(address, kPanelBytes);
  }
  // The columns 8 chunk + 2 (lane % 4) and the next, as a lane's sums have them.
  __device__ __forceinline__ float2 pair(int row, int chunk) const {
    return widened_pair(data + chunk / 8 * kPanelBytes + row * 128 + (chunk ^ row) % 8 * 16 +
                        lane_id() % 4 * 4);
  }
  // Starts copies of rows from t on, by one thread.
  __device__ __forceinline__ void copy(const TileMap& from, int row, int t, int head,
                                       SharedAddress barrier) const {
#pragma unroll
    for (int i = 0; i < kRows; i += kTile)
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
        copy_tile(address + (panel * kPanelBytes + i * 128), from, row, t + i, head, 64 * panel,
                  barrier);
  }
};

// sums = left right^T, of 64 rows each.
template <int D, int kRows>
__device__ __forceinline__ void multiply(Sums& sums, const Panels<D, kRows>& left, int first,
                                         const Panels<D, kTile>& right) {
  const SharedMatrix a = left.rows_from(first), b = right.rows_from(0);
  multiply_rows(sums.x[0], a, b);
#pragma unroll
  for (int k = 1; k < D / 16; ++k)
    multiply_add_rows(sums.x[0], a + (k / 4 * left.kPanelBytes + k % 4 * 32),
                      b + (k / 4 * right.kPanelBytes + k % 4 * 32));
  commit_products();
}

// sums += left right.
template <int D>
__device__ __forceinline__ void add_product(Gradients<D>& sums,
                                            const flash::Operand<1, kTile / 16>& left,
                                            const Panels<D, kTile>& right) {
  const SharedMatrix b = right.columns();
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k)
    multiply_add_columns(sums.x[0], left.x[0][k], b + k * 16 * 128);
  commit_products();
}

// Of the lane's columns, those of the queries of a tile: read before a wait, as what is read after
// it would be waited for again.
struct Numbers {
  float2 of[kTile / 8];

  __device__ __forceinline__ explicit Numbers(const float* from) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
      of[n] = *reinterpret_cast<const float2*>(from + 8 * n + lane_id() % 4 * 2);
  }
  __device__ __forceinline__ float operator()(int n, int e) const {
    return e % 2 == 0 ? of[n].x : of[n].y;
  }
};

// Tiles on their way through kStages places in shared memory, each with a barrier for its arrival
// and one for the warps that no longer need it.
struct Pipeline {
  static constexpr int kBytes = 2 * kStages * 8;
  SharedAddress barriers;

  __device__ __forceinline__ SharedAddress full(int step) const {
    return barriers + 8 * (step % kStages);
  }
  __device__ __forceinline__ SharedAddress empty(int step) const {
    return barriers + 8 * (kStages + step % kStages);
  }
  // By the whole block.
  __device__ __forceinline__ void begin() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        init_barrier(full(i), 1);
        init_barrier(empty(i), static_cast<int>(blockDim.x) / 32);
      }
      show_barriers();
    }
    __syncthreads();
  }
  // By one thread, before it starts copies of so many bytes.
  __device__ __forceinline__ void expect(int step, int bytes) const {
    if (step >= kStages) wait_for_phase(empty(step), (step / kStages - 1) % 2);
    arrive_expecting(full(step), bytes);
  }
  // Returns the tile's place, which ptxas knows to be the same for all lanes.
  __device__ __forceinline__ int wait(int step) const {
    wait_for_phase(full(step), step / kStages % 2);
    return __shfl_sync(kAllLanes, step % kStages, 0);
  }
  // By whole warps. What lanes have read went into products since, which a warp issues as one; so
  // no __syncwarp() is needed, which took 5 to 9 % of a kernel's time. Who skips the products of a
  // tile that it has read synchronises the warp first.
  __device__ __forceinline__ void release(int step) const {
    if (lane_id() == 0) arrive(empty(step));
  }
  // Has one thread start copies of the tile behind the next, of so many steps.
  template <class Fetch>
  __device__ __forceinline__ static void fetch_ahead(int step, int steps, const Fetch& fetch) {
    if (threadIdx.x == 0 && step + 2 < steps) fetch(step + 2, 0);
    __syncwarp();
  }
};

// Which 64 rows of the block's the warpgroup has, and which 16 the warp.
struct Rows {
  int of_group = flash::warp_id() / 4 * kTile;
  int of_warp = flash::warp_id() * 16;
};

inline constexpr int kAlignment = 1024;  // of tiles

// A block of so many warpgroups, with two tensors' rows that are its own and, of two others,
// kStages tiles, in this order in shared memory.
template <int D, int kGroups>
struct BlockShape {
  static constexpr int kThreads = 128 * kGroups;
  static constexpr int kOwn = kTile * kGroups;
  using Own = Panels<D, kOwn>;
  using Stage = Panels<D, kTile>;
  static constexpr int kStageBytes = 2 * Stage::kBytes;
  static constexpr int kTileBytes = 2 * Own::kBytes + kStages * kStageBytes;

  static __device__ __forceinline__ int stage_offset(int step) {
    return 2 * Own::kBytes + step % kStages * kStageBytes;
  }
  static __device__ __forceinline__ Stage stage(std::byte* shared, int step, int which) {
    return Stage(shared + stage_offset(step) + which * Stage::kBytes);
  }
};

// Writes the warp's rows of a gradient; `tile` is scratch of the size of the block's.
template <int D>
__device__ __forceinline__ void write_gradient(const Gradients<D>& sums, std::byte* tile,
                                               const Rows& own, BF16* to, std::int64_t stride,
                                               int first, const Geometry& g, float factor) {
  flash::write_rows<1, D>(sums, flash::Tile<D>(tile), own.of_warp, to, stride, first + own.of_warp,
                          g.t, g.h, [factor](int, int) { return factor; });
}

// What rotary_norm did to rows of 128: their rstd, null where it was not called.
struct Rotary {
  const float* rstd;
  float scale;
};
// Cosines or sines of the angles of rows.
template <int kRows>
using Angles = Panels<64, kRows>;

// Takes the warp's rows of a gradient, of which these sums are 1 / factor, from rows `y` that
// rotary_norm wrote to those that it read (rotary_norm_backward). Row t of a head has
// rotary.rstd[t * heads].
template <int kRows>
__device__ __forceinline__ void through_rotary(Gradients<128>& sums, const Panels<128, kRows>& y,
                                               const Angles<kRows>& cos, const Angles<kRows>& sin,
                                               const Rows& own, int first, int t,
                                               const Rotary& rotary, int heads, float factor) {
  constexpr int kChunks = 16, kHalf = kChunks / 2;
  flash::for_rows<1>([&](int r, int half) {
    const int row = own.of_warp + 8 * half + lane_id() / 4;
    const float scale =
        factor * rotary.scale * rotary.rstd[std::int64_t{min(first + row, t - 1)} * heads];
    float sum = 0.0F;
    float2 of_y[kChunks];
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
      of_y[n] = y.pair(row, n);
      sum = fmaf(sums.x[r][n][2 * half], of_y[n].x, sum);
      sum = fmaf(sums.x[r][n][2 * half + 1], of_y[n].y, sum);
    }
    const float mean = flash::row_sum(sum) / (rotary.scale * rotary.scale * 128);
#pragma unroll
    for (int n = 0; n < kHalf; ++n) {
      float* const d1 = &sums.x[r][n][2 * half];
      float* const d2 = &sums.x[r][n + kHalf][2 * half];
      const float2 c = cos.pair(row, n), s = sin.pair(row, n);
      const auto turn = [&](float& x1, float& x2, float y1, float y2, float of_c, float of_s) {
        const float r1 = scale * fmaf(-y1, mean, x1);
        const float r2 = scale * fmaf(-y2, mean, x2);
        x1 = fmaf(-r2, of_s, r1 * of_c);
        x2 = fmaf(r1, of_s, r2 * of_c);
      };
      turn(d1[0], d2[0], of_y[n].x, of_y[n + kHalf].x, c.x, s.x);
      turn(d1[1], d2[1], of_y[n].y, of_y[n + kHalf].y, c.y, s.y);
    }
  });
}

}  // namespace muo::cuda::warpgroup
