#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_tile.h"
#include "kernels/cuda/sums.h"
#include "runtime/cuda/compute_capability.h"
#include "runtime/cuda/warpgroup.h"

// The backward pass of flash_backward.cu for compute capability 9.0, by products of warpgroups and
// copies of tiles. As there, scores are computed by both kernels, so that every sum has one owner
// and one order.
namespace muo::cuda {

MUO_SHARED_MEMORY

namespace {

using flash::Backward;
using flash::Geometry;
using flash::Seen;

constexpr int kTile = 64;   // rows that arrive at once, and of a warpgroup
constexpr int kStages = 3;  // tiles in shared memory: two arrive while one is computed with
using Sums = flash::Accumulators<1, kTile / 8>;
template <int D>
using Gradients = flash::Accumulators<1, D / 8>;

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

constexpr int kAlignment = 1024;  // of tiles

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

  static __device__ __forceinline__ Stage stage(std::byte* shared, int step, int which) {
    return Stage(shared + 2 * Own::kBytes + step % kStages * kStageBytes + which * Stage::kBytes);
  }
};

__device__ __forceinline__ std::byte* aligned_memory() {
  auto* const p = shared_memory<std::byte>();
  return p + (-reinterpret_cast<std::uintptr_t>(p) & (kAlignment - 1));
}

// Writes the warp's rows of a gradient; `tile` is scratch of the size of the block's.
template <int D>
__device__ __forceinline__ void write_gradient(const Gradients<D>& sums, std::byte* tile,
                                               const Rows& own, BF16* to, std::int64_t stride,
                                               int first, const Geometry& g, float factor) {
  flash::write_rows<1, D>(sums, flash::Tile<D>(tile), own.of_warp, to, stride, first + own.of_warp,
                          g.t, g.h, [factor](int, int) { return factor; });
}

struct Maps {
  TileMap q, k, v, dout;
};

// What the first kernel leaves for the second: of each head and tile of queries -lse / ln 2, the
// dots of dout and out and, where kDocuments, where the query's document begins.
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
constexpr int kQueryGroups = kDocuments&& D > 64 ? 2 : 3;  // as registers allow

template <int D, bool kDocuments>
struct QueryShape : BlockShape<D, kQueryGroups<D, kDocuments>> {
  using Base = BlockShape<D, kQueryGroups<D, kDocuments>>;
  static constexpr int kShared = kAlignment + Base::kTileBytes + Pipeline::kBytes +
                                 Base::kOwn * int{sizeof(float)} +
                                 flash::kStartBytes<kDocuments, Base::kOwn>;
};

// A block has 192 queries of one head, a warpgroup 64, and tiles of 64 keys and values pass through
// shared memory, where queries and output gradients stay. The dots of these with the outputs are
// computed on the way. 6 D FLOPs per visible pair; per query a block reads 6 D bytes and 4 D per
// key that one of its queries sees. Bound by what is done to scores between products, which the
// other warpgroups' products hide in part.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(QueryShape<D, kDocuments>::kThreads, 1)
    warpgroup_queries_kernel(Backward p, const __grid_constant__ Maps maps, const BF16* out,
                             float* numbers) {
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
  const auto fetch = [&](int step, int more) {
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
    if (steps > 1) fetch(1, 0);
  }

  const int which = static_cast<int>(threadIdx.x) / 2;  // two threads have a query
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
      Pipeline::fetch_ahead(step, steps, fetch);
      continue;
    }
    Sums scores;
    Sums gradients;
    begin_products();
    multiply(scores, queries, own.of_group, stage(place, 0));
    multiply(gradients, douts, own.of_group, stage(place, 1));
    Pipeline::fetch_ahead(step, steps, fetch);
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
  __syncthreads();  // nobody needs the queries
  write_gradient<D>(dq, queries.data, own, p.dq + offset, g.stride(), first, g, g.scale);
}

// ---- dk and dv ----------------------------------------------------------------------------------

template <int D, bool kDocuments>
struct KeyShape : BlockShape<D, 2> {
  using Numbers = QueryNumbers<kDocuments>;
  static constexpr int kShared =
      kAlignment + BlockShape<D, 2>::kTileBytes + kStages * Numbers::kBytes + Pipeline::kBytes;
};

// A block has 128 keys of one key-value head, a warpgroup 64. Tiles of 64 queries and output
// gradients, of each head of the group in turn, pass through shared memory. Everything is computed
// transposed, keys along rows: so probabilities and score gradients lie in registers as the left
// operands of dv += P^T dO and dk += dS^T Q must. 8 D FLOPs per visible pair; a block reads 4 D
// bytes per query. Bound as the other kernel.
template <int D, bool kDocuments>
__global__ void __launch_bounds__(KeyShape<D, kDocuments>::kThreads, 1)
    warpgroup_keys_kernel(Backward p, const __grid_constant__ Maps maps, const float* numbers) {
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
  int last = min(g.t - 1, first + S::kOwn - 1 + g.window);  // query that sees a key
  if constexpr (kDocuments) {
    last =
        Seen<true>::of_row(g, p.starts, row).last_of_document(min(first + S::kOwn, g.t) - 1, last);
  }
  const int tiles = last / kTile - begin + 1;
  const int steps = tiles * g.group;
  const auto fetch = [&](int step, int more) {
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
    if (steps > 1) fetch(1, 0);
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
      pipeline.release(step);
      Pipeline::fetch_ahead(step, steps, fetch);
      continue;
    }
    Sums scores;
    Sums gradients;
    begin_products();
    multiply(scores, keys, own.of_group, stage(place, 0));
    multiply(gradients, values, own.of_group, stage(place, 1));
    Pipeline::fetch_ahead(step, steps, fetch);
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

  __syncthreads();  // nobody needs keys and values
  const std::int64_t offset = g.kv_offset(row, kv_head);
  write_gradient<D>(dk, keys.data, own, p.dk + offset, g.kv_stride(), first, g, g.scale);
  write_gradient<D>(dv, values.data, own, p.dv + offset, g.kv_stride(), first, g, 1.0F);
}

}  // namespace

bool warpgroups_compute() {
  int device = 0;
  MUO_CUDA_CHECK(cudaGetDevice(&device));
  return compute_capability(device) == 90 &&
         most_shared_bytes(warpgroup_queries_kernel<128, false>) >= QueryShape<128, false>::kShared;
}

void warpgroup_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  Backward p{AttentionGradients<BF16, int>::of(args), 1.0F / args.scale, 0, starts_of(args)};
  const std::int64_t b = args.q.shape[0], heads = args.q.shape[2], kv_heads = args.k.shape[2];
  const Maps maps{tile_map(args.q), tile_map(args.k), tile_map(args.v), tile_map(args.dout)};
  auto* const numbers = args.workspace.as<float>();
  with_head_size<64, 128>(p.g.h, [&]<int D>() {
    with_documents(args, [&]<bool kDocuments>() {
      using Queries = QueryShape<D, kDocuments>;
      p.blocks = static_cast<int>(ceil_div(p.g.t, Queries::kOwn));
      launch(warpgroup_queries_kernel<D, kDocuments>, static_cast<unsigned>(p.blocks * b * heads),
             Queries::kThreads, Queries::kShared, stream, p, maps, args.out.as<BF16>(), numbers);
      using Keys = KeyShape<D, kDocuments>;
      p.blocks = static_cast<int>(ceil_div(p.g.t, Keys::kOwn));
      launch(warpgroup_keys_kernel<D, kDocuments>, static_cast<unsigned>(p.blocks * b * kv_heads),
             Keys::kThreads, Keys::kShared, stream, p, maps, numbers);
    });
  });
}

}  // namespace muo::cuda
