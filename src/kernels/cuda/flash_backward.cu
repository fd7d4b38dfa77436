#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_tile.h"

// Both kernels compute the scores, so that every sum has one owner and one order. This costs two of
// seven products, but avoids atomics and partial sums.
namespace muo::cuda {

MUO_SHARED_MEMORY

namespace {

using flash::Accumulators;
using flash::Backward;
using flash::Geometry;
using flash::Operand;
using flash::Tile;

// The probability of a score: 2^(scale s - lse), 0 for invisible pairs.
__device__ __forceinline__ float probability(float score, float scale, float lse) {
  return exp2_approximate(fmaf(score, scale, -lse));
}

// ---- dk and dv ----------------------------------------------------------------------------------

// Initialises each sum with `factor` times the number of its column. The number would otherwise be
// subtracted from the sum afterwards, and would need a register of its own.
template <int R, int N>
__device__ __forceinline__ void begin_at(Accumulators<R, N>& sums, const float* numbers,
                                         float factor) {
  const int column = lane_id() % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 pair = *reinterpret_cast<const float2*>(numbers + 8 * n + column);
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums.x[r][n][e] = factor * (e % 2 == 0 ? pair.x : pair.y);
  }
}

template <int D, bool kDocuments>
struct KeyShape {
  static constexpr int kRowTiles = D <= 64 ? 2 : 1;  // limited by registers for accumulators
  static constexpr int kKeys = flash::kWarps * 16 * kRowTiles;
  static constexpr int kStage = 64;    // queries that are copied at once
  static constexpr int kQueries = 32;  // queries that are computed with at once
  static constexpr int kStageBytes = 2 * kStage * Tile<D>::kRowBytes;
  // The numbers of each query of a stage: lse, dots and, if kDocuments, the start of its document.
  // The start is stored twice, because copying it with half of the threads would take a branch, and
  // hence a register.
  static constexpr int kNumbers = kDocuments ? 4 : 2;
  static constexpr int kShared =
      2 * kKeys * Tile<D>::kRowBytes + 2 * (kStageBytes + kNumbers * kStage * int{sizeof(float)});
};

// A block has 128 (D <= 64) or 64 keys of one key-value head, a warp 32 or 16; blocks whose keys
// are seen by most queries start first. Tiles of 64 queries and output gradients pass through
// shared memory in two stages, for each head of the group in turn, as far as a query sees one of
// the keys. Everything is computed transposed, with keys along rows, so that probabilities and
// score gradients are in the register layout of left operands for dv += P^T dO and dk += dS^T Q. 8
// D FLOPs per visible pair; a block reads 4 D bytes per query. Bound by the tensor cores and,
// because a fragment is used for only one or two products, by shared memory, of which 1024 FLOPs
// read 80 bytes (D <= 64: 48).
template <int D, bool kDocuments>
__global__ void __launch_bounds__(flash::kThreads, 2) flash_keys_kernel(Backward p) {
  using S = KeyShape<D, kDocuments>;
  constexpr int kRowTiles = S::kRowTiles;
  constexpr int kColumns = S::kQueries / 8;
  const Geometry& g = p.g;
  const int kv_heads = g.heads / g.group;
  const int block = static_cast<int>(blockIdx.x) % p.blocks;
  const int kv_head = static_cast<int>(blockIdx.x) / p.blocks % kv_heads;
  const int row = static_cast<int>(blockIdx.x) / p.blocks / kv_heads;

  std::byte* const shared = shared_memory<std::byte>();
  const Tile<D> keys(shared);
  const Tile<D> values(shared + S::kKeys * Tile<D>::kRowBytes);
  std::byte* const stages = shared + 2 * S::kKeys * Tile<D>::kRowBytes;
  const auto stage = [&](int step, int which) {
    return Tile<D>(stages + step % 2 * S::kStageBytes + which * (S::kStageBytes / 2));
  };
  const auto numbers = [&](int step, int which) {
    return reinterpret_cast<float*>(stages + 2 * S::kStageBytes) +
           (step % 2 * S::kNumbers + which) * S::kStage;
  };

  const int first = block * S::kKeys;
  const int own = flash::warp_id() * 16 * kRowTiles;
  const int low = first + own, high = low + 16 * kRowTiles - 1;
  const int begin = first / S::kStage;
  int last = min(g.t - 1, first + S::kKeys - 1 + g.window);  // last query that sees one of the keys
  if constexpr (kDocuments)
    last = flash::Seen<true>::of_row(g, p.starts, row)
               .last_of_document(min(first + S::kKeys, g.t) - 1, last);
  const auto fetch = [&](int step, int head, int query) {
    int where = static_cast<int>(blockIdx.x);  // recomputes `row`, which saves registers
    compute_here(where);
    const int batch_row = where / p.blocks / kv_heads;
    flash::copy_rows<S::kStage>(stage(step, 0), p.q, g.offset(batch_row, head), g.stride(), query,
                                g.t, g.h);
    flash::copy_rows<S::kStage>(stage(step, 1), p.dout, g.offset(batch_row, head), g.stride(),
                                query, g.t, g.h);
    static_assert(flash::kThreads == 2 * S::kStage);
    const int which = static_cast<int>(threadIdx.x) / S::kStage;
    const int i = static_cast<int>(threadIdx.x) % S::kStage;
    const bool inside = query + i < g.t;
    const float* from =
        (which == 0 ? p.lse : p.dots) + g.row_offset(batch_row, head) + (inside ? query + i : 0);
    copy_async_4(shared_address(numbers(step, which) + i), from, inside);
    if constexpr (kDocuments)
      copy_async_4(shared_address(numbers(step, 2 + which) + i),
                   p.starts + batch_row * g.t + min(query + i, g.t - 1), true);
    copy_async_commit();
  };
  flash::copy_rows<S::kKeys>(keys, p.k, g.kv_offset(row, kv_head), g.kv_stride(), first, g.t, g.h);
  flash::copy_rows<S::kKeys>(values, p.v, g.kv_offset(row, kv_head), g.kv_stride(), first, g.t,
                             g.h);
  int head = kv_head * g.group;
  const int heads_end = head + g.group;
  fetch(0, head, begin * S::kStage);

  Accumulators<kRowTiles, D / 8> dk;
  Accumulators<kRowTiles, D / 8> dv;
  dk.clear();
  dv.clear();
  int first_query = begin * S::kStage;
#pragma unroll 1
  for (int step = 0; head < heads_end; ++step) {
    copy_async_wait<0>();
    __syncthreads();  // this tile has arrived, and the previous one is no longer used
    const int here = first_query;
    first_query += S::kStage;
    if (first_query > last) {
      first_query = begin * S::kStage;
      ++head;
    }
    if (head < heads_end) fetch(step + 1, head, first_query);
    const flash::Seen<kDocuments> seen{
        g, kDocuments ? reinterpret_cast<const std::int32_t*>(numbers(step, 2)) : nullptr, here};
#pragma unroll 1
    for (int offset = 0; offset < S::kStage; offset += S::kQueries) {
      const int query = here + offset;
      if (query + S::kQueries - 1 < low || seen.query_is_behind(query, high)) continue;
      Accumulators<kRowTiles, kColumns> probabilities;
      begin_at<kRowTiles>(probabilities, numbers(step, 0) + offset, -p.per_scale);
      flash::add_rows<kRowTiles, kColumns, D>(probabilities, keys, own, stage(step, 0), offset);
      if (query < high || seen.query_is_behind(query + S::kQueries - 1, low))
        flash::mask<false>(probabilities, seen, low, query);
      probabilities.each([&](int r, int n, int e) {
        float& x = probabilities.x[r][n][e];
        x = exp2_approximate(g.scale * kLog2E * x);
      });
      flash::add_product<kRowTiles, kColumns / 2, D>(dv, flash::operand(probabilities),
                                                     stage(step, 1), offset);

      Accumulators<kRowTiles, kColumns> gradients;
      begin_at<kRowTiles>(gradients, numbers(step, 1) + offset, -1.0F);
      flash::add_rows<kRowTiles, kColumns, D>(gradients, values, own, stage(step, 1), offset);
      gradients.each(
          [&](int r, int n, int e) { gradients.x[r][n][e] *= probabilities.x[r][n][e]; });
      flash::add_product<kRowTiles, kColumns / 2, D>(dk, flash::operand(gradients), stage(step, 0),
                                                     offset);
    }
  }

  flash::write_rows<kRowTiles, D>(dk, keys, own, p.dk + g.kv_offset(row, kv_head), g.kv_stride(),
                                  low, g.t, g.h, [&](int, int) { return g.scale; });
  flash::write_rows<kRowTiles, D>(dv, values, own, p.dv + g.kv_offset(row, kv_head), g.kv_stride(),
                                  low, g.t, g.h, [](int, int) { return 1.0F; });
}

// ---- dq -----------------------------------------------------------------------------------------

template <int D, bool kDocuments>
struct QueryShape {
  static constexpr int kRowTiles = 2;
  static constexpr int kQueries = flash::kWarps * 16 * kRowTiles;
  static constexpr int kStage = D <= 64 ? 64 : 32;  // keys that are copied at once
  static constexpr int kKeys = 32;                  // keys that are computed with at once
  static constexpr int kTileBytes = (2 * kQueries + 4 * kStage) * Tile<D>::kRowBytes;
  static constexpr int kShared = kTileBytes + flash::kStartBytes<kDocuments, kQueries>;
};

// Like the forward pass: a block has 128 queries of one head, a warp 32. Tiles of 64 (D > 64: 32)
// keys and values pass through shared memory in two stages; queries and output gradients stay
// there. 6 D FLOPs per visible pair; per query, a block reads 4 D bytes per 128 keys. Bound by
// the tensor cores.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(flash::kThreads, 2) flash_queries_kernel(Backward p) {
  using S = QueryShape<D, kDocuments>;
  constexpr int kRowTiles = S::kRowTiles;
  constexpr int kColumns = S::kKeys / 8;
  const Geometry& g = p.g;
  const int block = p.blocks - 1 - static_cast<int>(blockIdx.x) % p.blocks;
  const int head = static_cast<int>(blockIdx.x) / p.blocks % g.heads;
  const int row = static_cast<int>(blockIdx.x) / p.blocks / g.heads;
  const std::int64_t kv_offset = g.kv_offset(row, head / g.group);

  std::byte* const shared = shared_memory<std::byte>();
  const Tile<D> queries(shared);
  const Tile<D> douts(shared + S::kQueries * Tile<D>::kRowBytes);
  const auto stage = [&](int tile, int which) {
    constexpr int kBytes = S::kStage * Tile<D>::kRowBytes;
    return Tile<D>(shared + 2 * S::kQueries * Tile<D>::kRowBytes + (tile % 2 * 2 + which) * kBytes);
  };
  const auto fetch = [&](int tile) {
    flash::copy_rows<S::kStage>(stage(tile, 0), p.k, kv_offset, g.kv_stride(), tile * S::kStage,
                                g.t, g.h);
    flash::copy_rows<S::kStage>(stage(tile, 1), p.v, kv_offset, g.kv_stride(), tile * S::kStage,
                                g.t, g.h);
    copy_async_commit();
  };

  const int first = block * S::kQueries;
  const int own = flash::warp_id() * 16 * kRowTiles;
  const int low = first + own, high = low + 16 * kRowTiles - 1;
  const int begin = flash::Seen<kDocuments>::of_row(g, p.starts, row).first_key(first) / S::kStage;
  const int end = (min(g.t, first + S::kQueries) + S::kStage - 1) / S::kStage;
  flash::copy_rows<S::kQueries>(queries, p.q, g.offset(row, head), g.stride(), first, g.t, g.h);
  flash::copy_rows<S::kQueries>(douts, p.dout, g.offset(row, head), g.stride(), first, g.t, g.h);
  fetch(begin);
  const auto seen =
      flash::copy_starts<kDocuments, S::kQueries>(g, p.starts, row, first, shared + S::kTileBytes);

  float exponents[kRowTiles][2];
  float dots[kRowTiles][2];
  flash::for_rows<kRowTiles>([&](int r, int half) {
    const int query = low + 16 * r + 8 * half + lane_id() / 4;
    const std::int64_t at = g.row_offset(row, head) + min(query, g.t - 1);
    exponents[r][half] = p.lse[at] * kLog2E;
    dots[r][half] = p.dots[at];
  });
  Accumulators<kRowTiles, D / 8> dq;
  dq.clear();
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    copy_async_wait<0>();
    __syncthreads();  // this tile has arrived, and the previous one is no longer used
    if (tile + 1 < end) fetch(tile + 1);
#pragma unroll 1
    for (int offset = 0; offset < S::kStage; offset += S::kKeys) {
      const int key = tile * S::kStage + offset;
      if (key > high || seen.key_is_before(key + S::kKeys - 1, low)) continue;
      Accumulators<kRowTiles, kColumns> probabilities;
      probabilities.clear();
      flash::add_rows<kRowTiles, kColumns, D>(probabilities, queries, own, stage(tile, 0), offset);
      if (key + S::kKeys - 1 > low || seen.key_is_before(key, high))
        flash::mask<true>(probabilities, seen, low, key);
      Accumulators<kRowTiles, kColumns> gradients;
      gradients.clear();
      flash::add_rows<kRowTiles, kColumns, D>(gradients, douts, own, stage(tile, 1), offset);
      gradients.each([&](int r, int n, int e) {
        float& x = gradients.x[r][n][e];
        x = probability(probabilities.x[r][n][e], g.scale * kLog2E, exponents[r][e / 2]) *
            (x - dots[r][e / 2]);
      });
      flash::add_product<kRowTiles, kColumns / 2, D>(dq, flash::operand(gradients), stage(tile, 0),
                                                     offset);
    }
  }
  flash::write_rows<kRowTiles, D>(dq, queries, own, p.dq + g.offset(row, head), g.stride(), low,
                                  g.t, g.h, [&](int, int) { return g.scale; });
}

}  // namespace

void flash_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  attention_dots(stream, args);
  Backward p{AttentionGradients<BF16, int>::of(args), 1.0F / args.scale, 0, starts_of(args)};
  const std::int64_t b = args.q.shape[0], heads = args.q.shape[2], kv_heads = args.k.shape[2];
  flash::with_tile(p.g.h, [&]<int D>() {
    with_documents(args, [&]<bool kDocuments>() {
      using Keys = KeyShape<D, kDocuments>;
      p.blocks = static_cast<int>(ceil_div(p.g.t, Keys::kKeys));
      launch(flash_keys_kernel<D, kDocuments>, static_cast<unsigned>(p.blocks * b * kv_heads),
             flash::kThreads, Keys::kShared, stream, p);
      using Queries = QueryShape<D, kDocuments>;
      p.blocks = static_cast<int>(ceil_div(p.g.t, Queries::kQueries));
      launch(flash_queries_kernel<D, kDocuments>, static_cast<unsigned>(p.blocks * b * heads),
             flash::kThreads, Queries::kShared, stream, p);
    });
  });
}

}  // namespace muo::cuda
