#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_tile.h"
#include "kernels/cuda/sums.h"
#include "kernels/cuda/warpgroup_tile.h"
#include "runtime/cuda/compute_capability.h"

// The backward pass of flash_backward.cu for compute capability 9.0, by warpgroup products
// and bulk tile copies. As there, both kernels compute the scores, so that every sum has one
// owner and one order.
namespace muo::cuda {

MUO_SHARED_MEMORY

namespace {

using flash::Backward;
using flash::Geometry;
using flash::Seen;
using namespace warpgroup;  // NOLINT(google-build-using-namespace): the rest of this file

__device__ __forceinline__ std::byte* aligned_memory() {
  auto* const p = shared_memory<std::byte>();
  return p + (-reinterpret_cast<std::uintptr_t>(p) & (kAlignment - 1));
}

struct Maps {
  TileMap q, k, v, dout;
  TileMap cos, sin;  // given if rotary_norm produced q and k
};

// Number of tiles that are copied after the last one. If the gradient is propagated through
// rotary_norm, two: cosines and sines of the block's rows; else none.
template <int D>
__device__ __forceinline__ int steps_of_angles(const Rotary& rotary) {
  return D == 128 && rotary.rstd != nullptr ? 2 : 0;
}
template <class Shape>
__device__ __forceinline__ Angles<Shape::kOwn> angles(std::byte* shared, int step) {
  return Angles<Shape::kOwn>(shared + Shape::stage_offset(step));
}
template <class Shape>
__device__ __forceinline__ void fetch_angles(std::byte* shared, const Pipeline& pipeline, int step,
                                             const TileMap& from, int first) {
  pipeline.expect(step, Angles<Shape::kOwn>::kBytes);
  angles<Shape>(shared, step).copy(from, 0, first, 0, pipeline.full(step));
}
// Finishes the gradient `sums` of the block's rows `y`, after all tiles have arrived. Returns the
// factor by which the gradient must still be multiplied.
template <class Shape, int D>
__device__ __forceinline__ float finish(Gradients<D>& sums, const typename Shape::Own& y,
                                        std::byte* shared, const Pipeline& pipeline, int steps,
                                        const Rows& own, int first, const Geometry& g,
                                        Rotary rotary, std::int64_t offset, int heads) {
  if constexpr (D == 128) {
    if (rotary.rstd != nullptr) {
      rotary.rstd += offset;
      const int cos = pipeline.wait(steps), sin = pipeline.wait(steps + 1);
      rotary_backward(sums, y, angles<Shape>(shared, cos), angles<Shape>(shared, sin), own, first,
                      g.t, rotary, heads, g.scale);
      return 1.0F;
    }
  }
  return g.scale;
}

// Results of the first kernel for the second. For each head and tile of queries: -lse / ln 2, the
// dot products of dout and out and, if kDocuments, the start of the query's document.
template <bool kDocuments>
struct QueryNumbers {
  static constexpr int kKinds = kDocuments ? 3 : 2;
  static constexpr int kBytes = kKinds * kTile * int{sizeof(float)};

  static __device__ __forceinline__ std::int64_t offset(const Geometry& g, int row, int head,
                                                        int tile) {
    const int tiles = (g.t + kTile - 1) / kTile;
    return ((std::int64_t{row} * g.heads + head) * tiles + tile) * kKinds * kTile;
  }
};

// ---- dq -----------------------------------------------------------------------------------------

template <int D, bool kDocuments>
constexpr int kQueryGroups = kDocuments&& D > 64 ? 2 : 3;  // limited by registers

template <int D, bool kDocuments>
struct QueryShape : BlockShape<D, kQueryGroups<D, kDocuments>> {
  using Base = BlockShape<D, kQueryGroups<D, kDocuments>>;
  static constexpr int kShared = kAlignment + Base::kTileBytes + Pipeline::kBytes +
                                 Base::kOwn * int{sizeof(float)} +
                                 flash::kStartBytes<kDocuments, Base::kOwn>;
};

// A block has 192 queries of one head, a warpgroup 64; tiles of 64 keys and values pass through
// shared memory, while queries and output gradients stay there. The kernel also computes the dot
// products of output gradients and outputs. 6 D FLOPs per visible pair; a block reads 6 D bytes per
// query, and 4 D bytes per key that one of its queries sees. Bound by the operations on scores
// between products, which the products of other warpgroups partly hide.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(QueryShape<D, kDocuments>::kThreads, 1)
    warpgroup_queries_kernel(Backward p, const __grid_constant__ Maps maps, const BF16* out,
                             float* numbers, Rotary rotary) {
  using S = QueryShape<D, kDocuments>;
  const Geometry& g = p.g;
  const int block = p.blocks - 1 - static_cast<int>(blockIdx.x) % p.blocks;
  const int head = static_cast<int>(blockIdx.x) / p.blocks % g.heads;
  const int row = static_cast<int>(blockIdx.x) / p.blocks / g.heads;
  const std::int64_t offset = g.offset(row, head);

  std::byte* const shared = aligned_memory();
  const typename S::Own queries(shared);
  const typename S::Own douts(shared + S::Own::kBytes);
  const auto stage = [&](int step, int which) { return S::stage(shared, step, which); };
  const Pipeline pipeline{shared_address(shared + S::kTileBytes)};
  auto* const dots = reinterpret_cast<float*>(shared + S::kTileBytes + Pipeline::kBytes);
  auto* const starts = reinterpret_cast<std::int32_t*>(dots + S::kOwn);

  const int first = block * S::kOwn;
  const Rows own;
  const int low = first + own.of_group, high = low + kTile - 1;
  const auto of_row = Seen<kDocuments>::of_row(g, p.starts, row);
  const int begin = of_row.first_key(first) / kTile;
  const int steps = (min(g.t, first + S::kOwn) + kTile - 1) / kTile - begin;
  const int all_steps = steps + steps_of_angles<D>(rotary);
  const auto fetch = [&](int step, int more) {
    if (step >= steps)
      return fetch_angles<S>(shared, pipeline, step, step == steps ? maps.cos : maps.sin, first);
    pipeline.expect(step, S::kStageBytes + more);
    const int key = (begin + step) * kTile;
    stage(step, 0).copy(maps.k, row, key, head / g.group, pipeline.full(step));
    stage(step, 1).copy(maps.v, row, key, head / g.group, pipeline.full(step));
  };
  pipeline.begin();
  if (threadIdx.x == 0) {
    fetch(0, 2 * S::Own::kBytes);
    queries.copy(maps.q, row, first, head, pipeline.full(0));
    douts.copy(maps.dout, row, first, head, pipeline.full(0));
    if (all_steps > 1) fetch(1, 0);
  }

  const int which = static_cast<int>(threadIdx.x) / 2;  // two threads per query
  {
    const int query = first + which;
    float sum = 0.0F;
    float lse = 0.0F;
    if (query < g.t) {
      const std::int64_t at = offset + query * g.stride();
      lse = p.lse[g.row_offset(row, head) + query];
#pragma unroll 8
      for (int d = static_cast<int>(threadIdx.x) % 2 * 8; d < g.h; d += 16)
        sum = dot(load<8>(p.dout + at + d), load<8>(out + at + d), sum);
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    if (threadIdx.x % 2 == 0) {
      float* const to =
          numbers + QueryNumbers<kDocuments>::offset(g, row, head, query / kTile) + query % kTile;
      const bool counts = query / kTile * kTile < g.t;
      dots[which] = sum;
      if (counts) to[0] = -kLog2E * lse;
      if (counts) to[kTile] = sum;
      if constexpr (kDocuments) {
        starts[which] = of_row.start(min(query, g.t - 1));
        if (counts) to[2 * kTile] = __int_as_float(starts[which]);
      }
    }
    __syncthreads();
  }
  const Seen<kDocuments> seen{g, kDocuments ? starts : nullptr, first};
  float exponents[2];
  float own_dots[2];
  flash::for_rows<1>([&](int, int half) {
    const int mine = own.of_warp + 8 * half + lane_id() / 4;
    exponents[half] = -kLog2E * p.lse[g.row_offset(row, head) + min(first + mine, g.t - 1)];
    own_dots[half] = dots[mine];
  });

  Gradients<D> dq;
  dq.clear();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int place = pipeline.wait(step);
    const int key = (begin + step) * kTile;
    if (key > high || seen.key_is_before(key + kTile - 1, low)) {
      pipeline.release(step);
      Pipeline::fetch_ahead(step, all_steps, fetch);
      continue;
    }
    Sums scores;
    Sums gradients;
    begin_products();
    multiply(scores, queries, own.of_group, stage(place, 0));
    multiply(gradients, douts, own.of_group, stage(place, 1));
    Pipeline::fetch_ahead(step, all_steps, fetch);
    wait_for_products<1>(scores.x[0]);
    if (key + kTile - 1 > low || seen.key_is_before(key, high))
      flash::mask<true>(scores, seen, first + own.of_warp, key);
    Sums::each([&](int r, int n, int e) {
      float& x = scores.x[r][n][e];
      x = exp2_approximate(fmaf(x, g.scale * kLog2E, exponents[e / 2]));
    });
    wait_for_products<0>(gradients.x[0]);
    Sums::each([&](int r, int n, int e) {
      float& x = gradients.x[r][n][e];
      x = (x - own_dots[e / 2]) * scores.x[r][n][e];
    });
    const auto score_gradients = flash::operand(gradients);
    begin_products(dq.x[0]);
    add_product<D>(dq, score_gradients, stage(place, 0));
    wait_for_products<0>(dq.x[0]);
    pipeline.release(step);
  }
  const float factor = finish<S, D>(dq, queries, shared, pipeline, steps, own, first, g, rotary,
                                    std::int64_t{row} * g.t * g.heads + head, g.heads);
  __syncthreads();  // the queries are no longer used
  write_gradient<D>(dq, queries.data, own, p.dq + offset, g.stride(), first, g, factor);
}

// ---- dk and dv ----------------------------------------------------------------------------------

template <int D, bool kDocuments>
struct KeyShape : BlockShape<D, 2> {
  using Numbers = QueryNumbers<kDocuments>;
  static constexpr int kShared =
      kAlignment + BlockShape<D, 2>::kTileBytes + kStages * Numbers::kBytes + Pipeline::kBytes;
};

// A block has 128 keys of one key-value head, a warpgroup 64. Tiles of 64 queries and output
// gradients pass through shared memory, for each head of the group in turn. Everything is computed
// transposed, with keys along rows, so that probabilities and score gradients are in the register
// layout of left operands for dv += P^T dO and dk += dS^T Q. 8 D FLOPs per visible pair; a block
// reads 4 D bytes per query. Bound by the same operations as the other kernel.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(KeyShape<D, kDocuments>::kThreads, 1)
    warpgroup_keys_kernel(Backward p, const __grid_constant__ Maps maps, const float* numbers,
                          Rotary rotary) {
  using S = KeyShape<D, kDocuments>;
  const Geometry& g = p.g;
  const int kv_heads = g.heads / g.group;
  const int block = static_cast<int>(blockIdx.x) % p.blocks;
  const int kv_head = static_cast<int>(blockIdx.x) / p.blocks % kv_heads;
  const int row = static_cast<int>(blockIdx.x) / p.blocks / kv_heads;

  std::byte* const shared = aligned_memory();
  const typename S::Own keys(shared);
  const typename S::Own values(shared + S::Own::kBytes);
  const auto stage = [&](int step, int which) { return S::stage(shared, step, which); };
  const auto numbers_of = [&](int step, int kind) {
    return reinterpret_cast<float*>(shared + S::kTileBytes + step % kStages * S::Numbers::kBytes) +
           kind * kTile;
  };
  const Pipeline pipeline{shared_address(shared + S::kTileBytes + kStages * S::Numbers::kBytes)};

  const int first = block * S::kOwn;
  const Rows own;
  const int low = first + own.of_group, high = low + kTile - 1;
  const int begin = first / kTile;
  int last = min(g.t - 1, first + S::kOwn - 1 + g.window);  // last query that sees one of the keys
  if constexpr (kDocuments) {
    last =
        Seen<true>::of_row(g, p.starts, row).last_of_document(min(first + S::kOwn, g.t) - 1, last);
  }
  const int tiles = last / kTile - begin + 1;
  const int steps = tiles * g.group;
  const int all_steps = steps + steps_of_angles<D>(rotary);
  const auto fetch = [&](int step, int more) {
    if (step >= steps)
      return fetch_angles<S>(shared, pipeline, step, step == steps ? maps.cos : maps.sin, first);
    const int head = kv_head * g.group + step / tiles;
    const int tile = begin + step % tiles;
    pipeline.expect(step, S::kStageBytes + S::Numbers::kBytes + more);
    stage(step, 0).copy(maps.q, row, tile * kTile, head, pipeline.full(step));
    stage(step, 1).copy(maps.dout, row, tile * kTile, head, pipeline.full(step));
    copy_bytes(shared_address(numbers_of(step, 0)),
               numbers + S::Numbers::offset(g, row, head, tile), S::Numbers::kBytes,
               pipeline.full(step));
  };
  pipeline.begin();
  if (threadIdx.x == 0) {
    fetch(0, 2 * S::Own::kBytes);
    keys.copy(maps.k, row, first, kv_head, pipeline.full(0));
    values.copy(maps.v, row, first, kv_head, pipeline.full(0));
    if (all_steps > 1) fetch(1, 0);
  }

  Gradients<D> dk;
  Gradients<D> dv;
  dk.clear();
  dv.clear();
  int next = begin * kTile;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int query = next;
    next = query + kTile > last ? begin * kTile : query + kTile;
    const int place = pipeline.wait(step);
    const Seen<kDocuments> seen{
        g, kDocuments ? reinterpret_cast<const std::int32_t*>(numbers_of(place, 2)) : nullptr,
        query};
    if (query + kTile - 1 < low || seen.query_is_behind(query, high)) {
      if constexpr (kDocuments) {
        __syncwarp();  // `seen` has read the tile
      }
      pipeline.release(step);
      Pipeline::fetch_ahead(step, all_steps, fetch);
      continue;
    }
    Sums scores;
    Sums gradients;
    begin_products();
    multiply(scores, keys, own.of_group, stage(place, 0));
    multiply(gradients, values, own.of_group, stage(place, 1));
    Pipeline::fetch_ahead(step, all_steps, fetch);
    const Numbers exponents(numbers_of(place, 0));
    wait_for_products<1>(scores.x[0]);
    if (query < high || seen.query_is_behind(query + kTile - 1, low))
      flash::mask<false>(scores, seen, first + own.of_warp, query);
    Sums::each([&](int r, int n, int e) {
      float& x = scores.x[r][n][e];
      x = exp2_approximate(fmaf(x, g.scale * kLog2E, exponents(n, e)));
    });
    const auto probabilities = flash::operand(scores);
    begin_products(dv.x[0]);
    add_product<D>(dv, probabilities, stage(place, 1));
    const Numbers dots(numbers_of(place, 1));
    wait_for_products<1>(gradients.x[0]);
    Sums::each([&](int r, int n, int e) {
      float& x = gradients.x[r][n][e];
      x = (x - dots(n, e)) * scores.x[r][n][e];
    });
    const auto score_gradients = flash::operand(gradients);
    begin_products(dk.x[0]);
    add_product<D>(dk, score_gradients, stage(place, 0));
    wait_for_products<0>(dv.x[0], dk.x[0]);
    pipeline.release(step);
  }

  const float factor = finish<S, D>(dk, keys, shared, pipeline, steps, own, first, g, rotary,
                                    std::int64_t{row} * g.t * kv_heads + kv_head, kv_heads);
  __syncthreads();  // keys and values are no longer used
  const std::int64_t offset = g.kv_offset(row, kv_head);
  write_gradient<D>(dk, keys.data, own, p.dk + offset, g.kv_stride(), first, g, factor);
  write_gradient<D>(dv, values.data, own, p.dv + offset, g.kv_stride(), first, g, 1.0F);
}

}  // namespace

bool has_warpgroup_products() {
  int device = 0;
  MUO_CUDA_CHECK(cudaGetDevice(&device));
  return compute_capability(device) == 90 &&
         max_shared_bytes(warpgroup_queries_kernel<128, false>) >= QueryShape<128, false>::kShared;
}

void warpgroup_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  Backward p{AttentionGradients<BF16, int>::of(args), 1.0F / args.scale, 0, starts_of(args)};
  const std::int64_t b = args.q.shape[0], heads = args.q.shape[2], kv_heads = args.k.shape[2];
  Maps maps{tile_map(args.q), tile_map(args.k), tile_map(args.v), tile_map(args.dout), {}, {}};
  auto* const numbers = args.workspace.as<float>();
  const AttentionRotary& rotary = args.rotary;
  if (rotary.cos) {
    const Shape of_angles{1, rotary.cos.shape[0], 1, rotary.cos.shape[1]};
    maps.cos = tile_map(rotary.cos.view(of_angles));
    maps.sin = tile_map(rotary.sin.view(of_angles));
  }
  const Rotary of_q{data_or_null<float>(rotary.q_rstd), rotary.scale},
      of_k{data_or_null<float>(rotary.k_rstd), rotary.scale};
  with_head_size<64, 128>(p.g.h, [&]<int D>() {
    with_documents(args, [&]<bool kDocuments>() {
      using Queries = QueryShape<D, kDocuments>;
      p.blocks = static_cast<int>(ceil_div(p.g.t, Queries::kOwn));
      launch(warpgroup_queries_kernel<D, kDocuments>, static_cast<unsigned>(p.blocks * b * heads),
             Queries::kThreads, Queries::kShared, stream, p, maps, args.out.as<BF16>(), numbers,
             of_q);
      using Keys = KeyShape<D, kDocuments>;
      p.blocks = static_cast<int>(ceil_div(p.g.t, Keys::kOwn));
      launch(warpgroup_keys_kernel<D, kDocuments>, static_cast<unsigned>(p.blocks * b * kv_heads),
             Keys::kThreads, Keys::kShared, stream, p, maps, numbers, of_k);
    });
  });
}

}  // namespace muo::cuda
