#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_tile.h"

namespace muo::cuda {

MUO_SHARED_MEMORY

namespace {

using flash::Accumulators;
using flash::Geometry;
using flash::Operand;
using flash::Tile;

constexpr int kRowTiles = 2;  // 32 queries per warp
constexpr int kQueries = flash::kWarps * 16 * kRowTiles;
constexpr int kStage = 64;  // keys that are copied at once
template <int D>
constexpr int kKeys = D <= 64 ? 64 : 32;  // keys that are computed with at once

// Queries and two stages of keys and values, followed by the start of each query's document.
template <int D>
constexpr int kTileBytes = (kQueries + 4 * kStage) * Tile<D>::kRowBytes;
template <int D, bool kDocuments>
constexpr int kSharedBytes = kTileBytes<D> + flash::kStartBytes<kDocuments, kQueries>;

// Running softmax of the rows [r][half]. A lane has a quarter of each row; `sum`
// covers that quarter.
struct Softmax {
  float maximum[kRowTiles][2];  // maximum of the unscaled scores
  float sum[kRowTiles][2];
};

// Turns scores into probabilities relative to the running maximum, and rescales earlier sums and
// outputs to it. `scale` turns scores into exponents of 2. A row that has seen no key has
// the maximum -infinity, which must not be subtracted from itself.
template <int N, int D>
__device__ __forceinline__ void update(Softmax& softmax, Accumulators<kRowTiles, N>& scores,
                                       Accumulators<kRowTiles, D / 8>& out, float scale) {
  flash::for_rows<kRowTiles>([&](int r, int half) {
    const float before = softmax.maximum[r][half];
    float highest = before;
#pragma unroll
    for (int n = 0; n < N; ++n)
      highest = fmaxf(highest, fmaxf(scores.x[r][n][2 * half], scores.x[r][n][2 * half + 1]));
    highest = flash::row_max(highest);
    const float origin = highest == -INFINITY ? 0.0F : highest * scale;
    const float factor = exp2_approximate(fmaf(before, scale, -origin));
    float sum = softmax.sum[r][half] * factor;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        const float p = exp2_approximate(fmaf(scores.x[r][n][e], scale, -origin));
        scores.x[r][n][e] = p;
        sum += p;
      }
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e)
        out.x[r][n][e] *= factor;
    softmax.maximum[r][half] = highest;
    softmax.sum[r][half] = sum;
  });
}

struct Forward : AttentionTensors<BF16, int> {
  int blocks;  // number of query blocks
  const std::int32_t* starts;
};

// A block has 128 queries of one head, a warp 32; blocks of one head are adjacent, and those with
// the most keys come first. Tiles of 64 keys and values pass through shared memory in two stages,
// with one barrier per tile: one is copied while the other is used. Scores, probabilities and
// outputs never leave registers. Tiles that no query of a warp sees are skipped; masking is applied
// only to tiles at the borders of the band or of documents. 4 D FLOPs per visible pair of query and
// key; per query, a block reads 4 D bytes per 128 keys, mostly from L2. Bound by the tensor cores
// and, at D = 64, almost by the exponentials too.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(flash::kThreads, 2) flash_forward_kernel(Forward p) {
  const Geometry& g = p.g;
  const int block = p.blocks - 1 - static_cast<int>(blockIdx.x) % p.blocks;
  const int head = static_cast<int>(blockIdx.x) / p.blocks % g.heads;
  const int row = static_cast<int>(blockIdx.x) / p.blocks / g.heads;
  const std::int64_t kv_offset = g.kv_offset(row, head / g.group);

  std::byte* const shared = shared_memory<std::byte>();
  const Tile<D> queries(shared);
  const auto stage = [&](int tile, int which) {
    constexpr int kBytes = kStage * Tile<D>::kRowBytes;
    return Tile<D>(shared + kQueries * Tile<D>::kRowBytes + (tile % 2 * 2 + which) * kBytes);
  };
  const auto fetch = [&](int tile) {
    flash::copy_rows<kStage>(stage(tile, 0), p.k, kv_offset, g.kv_stride(), tile * kStage, g.t,
                             g.h);
    flash::copy_rows<kStage>(stage(tile, 1), p.v, kv_offset, g.kv_stride(), tile * kStage, g.t,
                             g.h);
    copy_async_commit();
  };

  const int first = block * kQueries;
  const int own = flash::warp_id() * 16 * kRowTiles;  // this warp's rows of the block
  const int low = first + own, high = low + 16 * kRowTiles - 1;
  const int begin = flash::Seen<kDocuments>::of_row(g, p.starts, row).first_key(first) / kStage;
  const int end = (min(g.t, first + kQueries) + kStage - 1) / kStage;
  flash::copy_rows<kQueries>(queries, p.q, g.offset(row, head), g.stride(), first, g.t, g.h);
  fetch(begin);
  const auto seen =
      flash::copy_starts<kDocuments, kQueries>(g, p.starts, row, first, shared + kTileBytes<D>);

  Accumulators<kRowTiles, D / 8> out;
  out.clear();
  Softmax softmax;
  flash::for_rows<kRowTiles>([&](int r, int half) {
    softmax.maximum[r][half] = -INFINITY;
    softmax.sum[r][half] = 0.0F;
  });

#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    copy_async_wait<0>();
    __syncthreads();  // this tile has arrived, and the previous one is no longer used
    if (tile + 1 < end) fetch(tile + 1);
#pragma unroll 1
    for (int offset = 0; offset < kStage; offset += kKeys<D>) {
      const int key = tile * kStage + offset;
      if (key > high || seen.key_is_before(key + kKeys<D> - 1, low)) continue;
      Accumulators<kRowTiles, kKeys<D> / 8> scores;
      scores.clear();
      flash::add_rows<kRowTiles, kKeys<D> / 8, D>(scores, queries, own, stage(tile, 0), offset);
      if (key + kKeys<D> - 1 > low || seen.key_is_before(key, high))
        flash::mask<true>(scores, seen, low, key);
      update<kKeys<D> / 8, D>(softmax, scores, out, g.scale * kLog2E);
      flash::add_product<kRowTiles, kKeys<D> / 16, D>(out, flash::operand(scores), stage(tile, 1),
                                                      offset);
    }
  }

  flash::for_rows<kRowTiles>([&](int r, int half) {
    float& sum = softmax.sum[r][half];
    sum = flash::row_sum(sum);
    const int query = low + 16 * r + 8 * half + lane_id() / 4;
    if (lane_id() % 4 == 0 && query < g.t)
      p.lse[g.row_offset(row, head) + query] = fmaf(softmax.maximum[r][half], g.scale, logf(sum));
  });
  flash::write_rows<kRowTiles, D>(out, queries, own, p.out + g.offset(row, head), g.stride(), low,
                                  g.t, g.h,
                                  [&](int r, int half) { return 1.0F / softmax.sum[r][half]; });
}

}  // namespace

void flash_attention(NativeStream stream, const AttentionArgs& args) {
  const Forward p{AttentionTensors<BF16, int>::of(args),
                  static_cast<int>(ceil_div(args.q.shape[1], kQueries)), starts_of(args)};
  flash::with_tile(p.g.h, [&]<int D>() {
    with_documents(args, [&]<bool kDocuments>() {
      launch(flash_forward_kernel<D, kDocuments>,
             static_cast<unsigned>(p.blocks * args.q.shape[0] * args.q.shape[2]), flash::kThreads,
             kSharedBytes<D, kDocuments>, stream, p);
    });
  });
}

}  // namespace muo::cuda
