#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_tile.h"
#include "runtime/cuda/warpgroup.h"

// Building blocks of attention by warpgroup products: tiles that are copied while others are used,
// and the operations on a gradient before it is written.
namespace muo::cuda::warpgroup {

using flash::Geometry;

inline constexpr int kTile = 64;   // rows per tile, and per warpgroup
inline constexpr int kStages = 3;  // tiles in shared memory: two are copied while one is used
using Sums = flash::Accumulators<1, kTile / 8>;
template <int D>
using Gradients = flash::Accumulators<1, D / 8>;

// Two adjacent bf16, widened.
__device__ __forceinline__ float2 widened_pair(const void* p) {
  const auto x = *static_cast<const std::uint32_t*>(p);
  return {__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000U)};
}

// Rows of D bf16 in shared memory as operands of warpgroup products, in panels of 64 columns.
template <int D, int kRows>
struct Panels {
  static constexpr int kPanelBytes = kRows * 128;
  static constexpr int kBytes = kRows * 2 * D;

  std::byte* data;
  SharedAddress address;

  __device__ __forceinline__ explicit Panels(std::byte* p) : data(p), address(shared_address(p)) {}

  // Operands that are summed along their rows, from row `first` on, or along the
  // columns of all rows.
  __device__ __forceinline__ SharedMatrix rows_from(int first) const {
    return along_rows(address + first * 128);
  }
  __device__ __forceinline__ SharedMatrix columns() const {
    return along_columns(address, kPanelBytes);
  }
  // Columns 8 chunk + 2 (lane % 4) and the next one, which are the columns of a lane's sums.
  __device__ __forceinline__ float2 pair(int row, int chunk) const {
    return widened_pair(data + chunk / 8 * kPanelBytes + row * 128 + (chunk ^ row) % 8 * 16 +
                        lane_id() % 4 * 4);
  }
  // Starts copies of rows from `t` on; one thread calls it.
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

// sums = left right^T, with 64 rows each.
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

// The numbers of a tile's queries, for the lane's columns. Read them before waiting for products:
// reads after that would stall again.
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

// The pipeline of tiles through kStages slots in shared memory. Each slot has a barrier for the
// arrival of its tile and one for the warps that release it.
struct Pipeline {
  static constexpr int kBytes = 2 * kStages * 8;
  SharedAddress barriers;

  __device__ __forceinline__ SharedAddress full(int step) const {
    return barriers + 8 * (step % kStages);
  }
  __device__ __forceinline__ SharedAddress empty(int step) const {
    return barriers + 8 * (kStages + step % kStages);
  }
  // The whole block calls it.
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
  // One thread calls it before it starts copies of `bytes` bytes.
  __device__ __forceinline__ void expect(int step, int bytes) const {
    if (step >= kStages) wait_for_phase(empty(step), (step / kStages - 1) % 2);
    arrive_expecting(full(step), bytes);
  }
  // Waits for the tile and returns its slot, which ptxas can infer to be uniform.
  __device__ __forceinline__ int wait(int step) const {
    wait_for_phase(full(step), step / kStages % 2);
    return __shfl_sync(kAllLanes, step % kStages, 0);
  }
  // Whole warps call it. It needs no __syncwarp(), which would take 5 to 9 % of a kernel's time:
  // what the lanes have read has meanwhile entered products, which a warp issues as one. A warp
  // that skips the products of a tile that it has read must call __syncwarp() first.
  __device__ __forceinline__ void release(int step) const {
    if (lane_id() == 0) arrive(empty(step));
  }
  // Starts, in one thread, copies of the tile after the next one, if step + 2 < steps.
  template <class Fetch>
  __device__ __forceinline__ static void fetch_ahead(int step, int steps, const Fetch& fetch) {
    if (threadIdx.x == 0 && step + 2 < steps) fetch(step + 2, 0);
    __syncwarp();
  }
};

// First of the warpgroup's 64 rows of the block, and first of the warp's 16 rows.
struct Rows {
  int of_group = flash::warp_id() / 4 * kTile;
  int of_warp = flash::warp_id() * 16;
};

inline constexpr int kAlignment = 1024;  // alignment of tiles, in bytes

// The shared memory of a block of kGroups warpgroups: its own rows of two tensors, then kStages
// tiles of two others.
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

// Writes the warp's rows of a gradient; `tile` is scratch for the block's rows.
template <int D>
__device__ __forceinline__ void write_gradient(const Gradients<D>& sums, std::byte* tile,
                                               const Rows& own, BF16* to, std::int64_t stride,
                                               int first, const Geometry& g, float factor) {
  flash::write_rows<1, D>(sums, flash::Tile<D>(tile), own.of_warp, to, stride, first + own.of_warp,
                          g.t, g.h, [factor](int, int) { return factor; });
}

// rstd and scale of the rotary_norm that produced rows of 128; rstd is null if there was none.
struct Rotary {
  const float* rstd;
  float scale;
};
// Cosines or sines for rows.
template <int kRows>
using Angles = Panels<64, kRows>;

// Propagates the warp's rows of a gradient, which is `factor` times `sums`, from rotary_norm's
// output `y` to its input (rotary_norm_backward). Row t of a head uses rotary.rstd[t * heads].
template <int kRows>
__device__ __forceinline__ void rotary_backward(Gradients<128>& sums, const Panels<128, kRows>& y,
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
