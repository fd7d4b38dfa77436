#include <cmath>
#include <cstdint>

#include "kernels/cuda/index_check.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/decode_attention.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kChunk = static_cast<int>(kDecodeChunk);
static_assert(kChunk == kThreads, "each thread has the probability of one key");
constexpr int kMaxHead = 256;
constexpr float kLog2E = 1.44269504088896340736F;

struct Problem {
  std::int64_t capacity, stride, window;  // stride: elements between consecutive positions
  int heads, group, h, chunks;
  float scale;                 // for exponents for base 2
  const std::int32_t* starts;  // document start of each row, or null

  // Index of a chunk's partial result for a head: the values weighted by the chunk's probabilities
  // relative to its maximum, followed by that maximum and the sum of the probabilities.
  __device__ __forceinline__ std::int64_t partial(int row, int head, int chunk) const {
    return ((std::int64_t{row} * heads + head) * chunks + chunk) * (h + 2);
  }
  __device__ __forceinline__ std::int64_t position_of(const std::int32_t* positions,
                                                      int row) const {
    const std::int32_t position = positions[row];
    check_index(0 <= position && position < capacity, "decode_attention: position", position, row,
                0, capacity);
    return position;
  }
  __device__ __forceinline__ std::int64_t first_key(std::int64_t position, int row) const {
    const std::int64_t first = position > window ? position - window : 0;
    if (starts == nullptr) return first;
    const std::int32_t start = starts[row];
    check_index(0 <= start && start <= position, "decode_attention: start", start, row, 0,
                position + 1);
    return max(first, std::int64_t{start});
  }
};

// One block per chunk of kChunk keys, head and row; blocks of chunks that the query does not see
// return at once. kLanes adjacent lanes share a key; each lane reads N consecutive elements out of
// every kLanes * N. Reads keys and values once: 2 sizeof(T) bytes for 2 multiply-adds, bound by
// memory; the heads of a group share keys and values in L2.
template <class T, int N, int kLanes>
__global__ void __launch_bounds__(kThreads, 4)
    decode_attention_kernel(float* __restrict__ partials, const T* __restrict__ q,
                            const T* __restrict__ keys, const T* __restrict__ values,
                            const std::int32_t* __restrict__ positions, const Problem p) {
  constexpr int kPacks = kLanes == 32 ? kMaxHead / (32 * N) : 1;  // per lane
  constexpr int kTeams = kThreads / kLanes;
  __shared__ float scores[kChunk];
  __shared__ float sums[kTeams * kLanes * N * kPacks];
  const int chunk = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.z);
  const std::int64_t position = p.position_of(positions, row);
  const std::int64_t first = p.first_key(position, row);
  const std::int64_t begin = max(std::int64_t{chunk} * kChunk, first);
  const std::int64_t end = min(std::int64_t{chunk + 1} * kChunk, position + 1);
  if (begin >= end) return;  // uniform across the block
  const int count = static_cast<int>(end - begin);

  const int team = static_cast<int>(threadIdx.x) / kLanes;
  const int at = static_cast<int>(threadIdx.x) % kLanes * N;
  const std::int64_t offset =
      (std::int64_t{row} * p.capacity + begin) * p.stride + std::int64_t{head / p.group} * p.h;
  q += (std::int64_t{row} * p.heads + head) * p.h;
  Pack<N> query[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i)
    if (const int d = at + i * kLanes * N; d < p.h) query[i] = load<N>(q + d);
  for (int first_of_teams = 0; first_of_teams < count; first_of_teams += kTeams) {
    const int key = first_of_teams + team;
    float score = 0.0F;
    if (key < count) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i)
        if (const int d = at + i * kLanes * N; d < p.h)
          score = dot(query[i], load<N>(keys + offset + key * p.stride + d), score);
    }
    score = warp_sum<kLanes>(score);
    if (at == 0 && key < count) scores[key] = score * p.scale;
  }
  __syncthreads();
  const bool has_key = static_cast<int>(threadIdx.x) < count;
  const float highest = block_max(has_key ? scores[threadIdx.x] : -INFINITY);
  const float probability = has_key ? exp2f(scores[threadIdx.x] - highest) : 0.0F;
  const float total = block_sum(probability);
  if (has_key) scores[threadIdx.x] = probability;
  __syncthreads();

  Pack<N> out[kPacks] = {};
  for (int key = team; key < count; key += kTeams) {
    const float weight = scores[key];
#pragma unroll
    for (int i = 0; i < kPacks; ++i)
      if (const int d = at + i * kLanes * N; d < p.h)
        out[i] = add_scaled(weight, load<N>(values + offset + key * p.stride + d), out[i]);
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (const int d = at + i * kLanes * N + j; d < p.h) sums[team * p.h + d] = out[i].v[j];
  __syncthreads();
  float* const partial = partials + p.partial(row, head, chunk);
  for (int d = static_cast<int>(threadIdx.x); d < p.h; d += kThreads) {
    float sum = 0.0F;
    for (int t = 0; t < kTeams; ++t)
      sum += sums[t * p.h + d];
    partial[d] = sum;
  }
  if (threadIdx.x == 0) {
    partial[p.h] = highest;
    partial[p.h + 1] = total;
  }
}

// One block per head and row combines the chunks that the query sees, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads, 4)
    decode_combine_kernel(T* __restrict__ out, const float* __restrict__ partials,
                          const std::int32_t* __restrict__ positions, const Problem p) {
  const int head = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const std::int64_t position = p.position_of(positions, row);
  const int first = static_cast<int>(p.first_key(position, row) / kChunk);
  const int last = static_cast<int>(position / kChunk);
  const auto chunk = [&](int i) { return partials + p.partial(row, head, i); };
  float highest = -INFINITY;
  for (int i = first; i <= last; ++i)
    highest = fmaxf(highest, chunk(i)[p.h]);
  float total = 0.0F;
  for (int i = first; i <= last; ++i)
    total = fmaf(exp2f(chunk(i)[p.h] - highest), chunk(i)[p.h + 1], total);
  for (int d = static_cast<int>(threadIdx.x); d < p.h; d += kThreads) {
    float sum = 0.0F;
    for (int i = first; i <= last; ++i)
      sum = fmaf(exp2f(chunk(i)[p.h] - highest), chunk(i)[d], sum);
    out[(std::int64_t{row} * p.heads + head) * p.h + d] = from_float<T>(sum / total);
  }
}

// Calls body.operator()<T, N, kLanes>() with as few lanes as a key needs, so that none is idle.
template <class Body>
void with_lanes(DType dtype, std::int64_t h, std::initializer_list<const void*> addresses,
                const Body& body) {
  dispatch_packs(dtype, h, addresses, [&]<class T, int N>() {
    const std::int64_t lanes = ceil_div(h, N);
    if (lanes <= 8)
      body.template operator()<T, N, 8>();
    else if (lanes <= 16)
      body.template operator()<T, N, 16>();
    else
      body.template operator()<T, N, 32>();
  });
}

void decode_attention(NativeStream stream, const DecodeAttentionArgs& args) {
  const Shape& q = args.q.shape;
  const Shape& keys = args.keys.shape;
  const auto b = static_cast<unsigned>(q[0]), heads = static_cast<unsigned>(q[1]);
  MUO_CHECK(q[0] <= 65535 && q[1] <= 65535, "decode_attention of ", q.text(),
            ": more than 65535 rows or heads");
  const std::int64_t chunks = ceil_div(keys[1], kDecodeChunk);
  const Problem p{.capacity = keys[1],
                  .stride = keys[2] * keys[3],
                  .window = args.window,
                  .heads = static_cast<int>(q[1]),
                  .group = static_cast<int>(q[1] / keys[2]),
                  .h = static_cast<int>(q[2]),
                  .chunks = static_cast<int>(chunks),
                  .scale = args.scale * kLog2E,
                  .starts = data_or_null<std::int32_t>(args.starts)};
  auto* const partials = args.workspace.as<float>();
  const auto* const positions = args.positions.as<std::int32_t>();
  with_lanes(args.q.dtype, q[2], {args.q.data, args.keys.data, args.values.data},
             [&]<class T, int N, int kLanes>() {
               launch(decode_attention_kernel<T, N, kLanes>,
                      dim3{static_cast<unsigned>(chunks), heads, b}, kThreads, 0, stream, partials,
                      args.q.as<T>(), args.keys.as<T>(), args.values.as<T>(), positions, p);
             });
  dispatch(args.q.dtype, [&]<class T>() {
    launch(decode_combine_kernel<T>, dim3{heads, b, 1}, kThreads, 0, stream, args.out.as<T>(),
           static_cast<const float*>(partials), positions, p);
  });
}

struct Append {
  std::int64_t rows, capacity, t, width;
  const std::int32_t* slots;
  const std::int32_t* positions;
};

// One warp per row of k and v: copies both. Reads and writes 2 sizeof(T) bytes per element, bound
// by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads, 4)
    cache_append_kernel(T* __restrict__ keys, T* __restrict__ values, const T* __restrict__ k,
                        const T* __restrict__ v, std::int64_t n, const Append p) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const std::int64_t i = row / p.t;
  const std::int32_t slot = p.slots == nullptr ? static_cast<std::int32_t>(i) : p.slots[i];
  check_index(0 <= slot && slot < p.rows, "cache_append: slot", slot, i, 0, p.rows);
  const std::int32_t position = p.positions == nullptr ? 0 : p.positions[i];
  check_index(0 <= position && position + p.t <= p.capacity, "cache_append: position", position, i,
              0, p.capacity - p.t + 1);
  const std::int64_t to = (slot * p.capacity + position + row % p.t) * p.width;
  const std::int64_t from = row * p.width;
  for (std::int64_t e = std::int64_t{lane_id()} * N; e < p.width; e += kWarp * N) {
    store(keys + to + e, load<N>(k + from + e));
    store(values + to + e, load<N>(v + from + e));
  }
}

void cache_append(NativeStream stream, const CacheAppendArgs& args) {
  const Shape& cache = args.keys.shape;
  const std::int64_t n = args.k.shape[0] * args.k.shape[1];
  const Append p{.rows = cache[0],
                 .capacity = cache[1],
                 .t = args.k.shape[1],
                 .width = cache[2] * cache[3],
                 .slots = data_or_null<std::int32_t>(args.slots),
                 .positions = data_or_null<std::int32_t>(args.positions)};
  dispatch_packs(args.k.dtype, p.width,
                 {args.keys.data, args.values.data, args.k.data, args.v.data},
                 [&]<class T, int N>() {
                   launch_rows(cache_append_kernel<T, N>, stream, n, args.keys.as<T>(),
                               args.values.as<T>(), args.k.as<T>(), args.v.as<T>(), n, p);
                 });
}

const KernelRegistration registration(&cache_append, &decode_attention);

}  // namespace
}  // namespace muo::cuda
