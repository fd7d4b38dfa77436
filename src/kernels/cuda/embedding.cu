#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/index_check.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/embedding.h"
#include "kernels/operation.h"
#include "runtime/cuda/ptx.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

MUO_SHARED_MEMORY

// One warp per row; a lane takes every 32nd access, and `Access` is 16 bytes or one element. Reads
// and writes sizeof(T) bytes per element: bound by bandwidth, or by L2 if the rows of a small
// vocabulary stay there.
template <class Access>
__global__ void __launch_bounds__(kRowThreads)
    embedding_kernel(Access* __restrict__ y, const Access* __restrict__ table,
                     const std::int32_t* tokens, std::int64_t n, std::int64_t v,
                     std::int64_t width) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const std::int32_t token = tokens[row];
  check_index(0 <= token && token < v, "embedding: token", token, row, 0, v);
  table += token * width;
  y += row * width;
#pragma unroll 4
  for (std::int64_t i = lane_id(); i < width; i += kWarp)
    y[i] = table[i];
}

void embedding(NativeStream stream, const EmbeddingArgs& args) {
  const std::int64_t n = args.tokens.shape[0], v = args.table.shape[0], c = args.table.shape[1];
  const auto copy_rows = [&]<class Access>(std::int64_t width) {
    launch_rows(embedding_kernel<Access>, stream, n, reinterpret_cast<Access*>(args.y.data),
                reinterpret_cast<const Access*>(args.table.data), args.tokens.as<std::int32_t>(), n,
                v, width);
  };
  dispatch(args.table.dtype, [&]<class T>() {
    if (vectors_fit<T>(c, {args.y.data, args.table.data}))
      copy_rows.template operator()<uint4>(c / kWidth<T>);
    else
      copy_rows.template operator()<T>(c);
  });
}

// ---- group_tokens, embedding_backward -----------------------------------------------------------

// Tokens of the vocabulary are assigned to bins round-robin, because frequent ones are adjacent
// (bytes, the first merges). Positions are sorted into the bins of their tokens, once for all
// tables that the tokens index. Then each block adds the rows of dy of one bin, for one slab of
// columns, to sums in shared memory. Every sum runs in the order of the positions, as on the host,
// without atomic operations.
//
// Cost, for n tokens, c columns and b bins: dy is read once and dtable written once (and read
// before, if it accumulates); sorting reads 8 n b bytes, from L2. For n = 65536, v = 32768, c = 768
// in bf16, that is 100 + 100 MB from memory and 134 MB from L2. The additions of a frequent token
// form one sequential chain, chunk by chunk, while other blocks work: in text, where one token in
// fifteen is the most frequent one, 68 chunks for 65536 tokens.

// An entry of a bin: the low bits are a token's position, the bits above its row within the bin.
constexpr int kPositionBits = 24;
constexpr std::int64_t kMaxRows = 128;  // per bin: the range of the upper bits without the sign
constexpr std::int64_t kBins = 256;     // unless the vocabulary needs more, or is smaller
constexpr int kGroupThreads = 1024;

constexpr int kThreads = 256;
constexpr int kColumns = 64;                     // per slab, one thread each
constexpr int kRowGroups = kThreads / kColumns;  // a thread adds to every kRowGroups-th row
constexpr int kStaged = 64;  // tokens per chunk, whose rows of dy are copied together
constexpr int kAtOnce = 8;   // tokens that a thread reads before it adds them

// Row and position of an entry. Entry -1 means none; its row is -1.
__device__ __forceinline__ int row_of(std::int32_t entry) { return entry >> kPositionBits; }
__device__ __forceinline__ int position_of(std::int32_t entry) {
  return entry & ((1 << kPositionBits) - 1);
}

// Token t is row t / count of bin t % count.
struct Bins {
  int vocab, shift;
  explicit Bins(std::int64_t v)
      : vocab(static_cast<int>(v)),
        shift(std::countr_zero(
            std::max(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(v, kMaxRows))),
                     std::bit_floor(static_cast<std::uint64_t>(std::min(v, kBins)))))) {}

  __host__ __device__ int count() const { return 1 << shift; }
  __host__ __device__ int rows(int bin) const { return (vocab - bin + count() - 1) >> shift; }
  __device__ int bin_of(int token) const { return token & (count() - 1); }
  __device__ int row_of(int token) const { return token >> shift; }
  __device__ int token_of(int bin, int row) const { return row << shift | bin; }
};

// One block per bin. It reads all tokens twice, each warp its own segment. First it counts the
// tokens of lower bins, which gives the beginning of its entries, and those of its own bin; then it
// writes the entries in order.
__global__ void __launch_bounds__(kGroupThreads, 1)
    group_tokens_kernel(std::int32_t* starts, std::int32_t* entries, const std::int32_t* tokens,
                        int n, Bins bins) {
  __shared__ int found[kGroupThreads / 32];
  const int own = static_cast<int>(blockIdx.x);
  const int lane = lane_id();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  const int segment = (n + 32 * warps - 1) / (32 * warps) * 32;
  const int begin = min(warp * segment, n);
  const int end = min(begin + segment, n);

  int below = 0;
  int inside = 0;
#pragma unroll 4
  for (int i = begin + lane; i < end; i += 32) {
    const int bin = bins.bin_of(tokens[i]);
    below += bin < own ? 1 : 0;
    inside += bin == own ? 1 : 0;
  }
  inside = warp_sum(inside);
  if (lane == 0) found[warp] = inside;
  const int start = block_sum(below);  // this is also the barrier after writing `found`
  const int total = warp_sum(lane < warps ? found[lane] : 0);
  if (threadIdx.x == 0) {
    starts[blockIdx.x] = start;
    if (blockIdx.x + 1 == gridDim.x) starts[gridDim.x] = start + total;
  }
  if (inside == 0 && blockIdx.x != 0) return;  // the first block also checks all tokens

  entries += start + warp_sum(lane < warp ? found[lane] : 0);
  for (int first = begin; first < end; first += 32) {
    const int i = first + lane;
    const int token = i < end ? tokens[i] : 0;
    if (own == 0)
      check_index(0 <= token && token < bins.vocab, "embedding: token", token, i, 0, bins.vocab);
    const bool match = i < end && bins.bin_of(token) == own;
    const unsigned matches = __ballot_sync(kAllLanes, match ? 1 : 0);
    if (match)
      entries[__popc(matches & ((1U << lane) - 1))] = bins.row_of(token) << kPositionBits | i;
    entries += __popc(matches);
  }
}

template <class G>
struct Problem {
  G* dtable;
  const std::int32_t* starts;
  const std::int32_t* entries;
  const float* scale;  // if kScaled
  Bins bins;
  int c;
  int groups, width;     // number and width of the column groups of `scale`
  int groups_in_a_slab;  // maximum
  bool accumulate;
};

// One block per slab of columns and bin, in chunks of kStaged tokens. While each thread adds the
// values of its column and rows in order, the rows of dy for the next chunk and the entries of the
// chunk after it are copied to shared memory. A sum stays in a register as long as its row repeats.
template <class T, class G, int N, bool kScaled>
__global__ void __launch_bounds__(kThreads, 4)
    embedding_backward_kernel(const T* __restrict__ dy, const Problem<G> p) {
  __shared__ std::int32_t entries[3][kStaged];       // -1: after the last
  auto* sums = shared_memory<float>();               // (max. rows of a bin, kColumns)
  float* scales = sums + p.bins.rows(0) * kColumns;  // (2, kStaged, groups in a slab)
  T* staged = reinterpret_cast<T*>(scales + (kScaled ? 2 * kStaged * p.groups_in_a_slab : 0));

  const int thread = static_cast<int>(threadIdx.x);
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int lane = thread % kColumns;
  const int row_group = thread / kColumns;
  const int column = first_column + lane;
  const int bin = static_cast<int>(blockIdx.y);
  const int held_rows = p.bins.rows(bin);
  const auto result = [&](int row) -> G& {
    return p.dtable[std::int64_t{p.bins.token_of(bin, row)} * p.c + column];
  };
  const int begin = p.starts[bin];
  const int end = p.starts[bin + 1];
  if (p.accumulate && begin == end) return;

  const int first_group = kScaled ? first_column / p.width : 0;
  const int group = kScaled ? min(column, p.c - 1) / p.width - first_group : 0;
  if (column < p.c)
    for (int r = row_group; r < held_rows; r += kRowGroups)
      sums[r * kColumns + lane] = p.accumulate ? to_float(result(r)) : 0.0F;

  const int chunks = (end - begin + kStaged - 1) / kStaged;
  const auto entry_of = [&](int chunk) {
    const int i = begin + chunk * kStaged + thread;
    return thread < kStaged && i < end ? p.entries[i] : -1;
  };
  const auto send_for = [&](int chunk) {
    const std::int32_t* of = entries[chunk % 3];
    constexpr int kPacks = kColumns / N;
#pragma unroll 4
    for (int i = thread; i < kStaged * kPacks; i += kThreads) {
      const int m = i / kPacks;
      const int at = i % kPacks * N;
      if (of[m] < 0 || first_column + at >= p.c) continue;
      const T* from = dy + std::int64_t{position_of(of[m])} * p.c + first_column + at;
      T* to = staged + (chunk % 2 * kStaged + m) * kColumns + at;
      if constexpr (N == 1)
        *to = *from;
      else
        copy_async_16(shared_address(to), from, true);
    }
    if constexpr (kScaled) {
      for (int i = thread; i < kStaged * p.groups_in_a_slab; i += kThreads) {
        const std::int32_t entry = of[i / p.groups_in_a_slab];
        const int k = first_group + i % p.groups_in_a_slab;
        if (entry >= 0 && k < p.groups)
          copy_async_4(shared_address(scales + chunk % 2 * kStaged * p.groups_in_a_slab + i),
                       p.scale + std::int64_t{position_of(entry)} * p.groups + k, true);
      }
    }
    copy_async_commit();
  };
  const auto add = [&](int chunk) {
    int held = -1;
    float sum = 0.0F;
    for (int first = 0; first < kStaged; first += kAtOnce) {
      int rows[kAtOnce];
      float terms[kAtOnce], factors[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int m = chunk % 2 * kStaged + first + j;
        rows[j] = row_of(entries[chunk % 3][first + j]);
        if (rows[j] % kRowGroups != row_group) continue;
        terms[j] = to_float(staged[m * kColumns + lane]);
        if constexpr (kScaled) factors[j] = scales[m * p.groups_in_a_slab + group];
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (rows[j] % kRowGroups != row_group) continue;
        if (rows[j] != held) {
          if (held >= 0) sums[held * kColumns + lane] = sum;
          held = rows[j];
          sum = sums[held * kColumns + lane];
        }
        sum = kScaled ? fmaf(factors[j], terms[j], sum) : sum + terms[j];
      }
    }
    if (held >= 0) sums[held * kColumns + lane] = sum;
  };

  if (thread < kStaged)
    for (int chunk = 0; chunk < 2; ++chunk)
      entries[chunk][thread] = entry_of(chunk);
  __syncthreads();
  send_for(0);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    copy_async_wait<0>();
    __syncthreads();  // the chunk has arrived, and the previous one has been added
    send_for(chunk + 1);
    const std::int32_t entry = entry_of(chunk + 2);
    if (column < p.c) add(chunk);
    if (thread < kStaged) entries[(chunk + 2) % 3][thread] = entry;
  }

  if (column < p.c)
    for (int r = row_group; r < held_rows; r += kRowGroups)
      result(r) = from_float<G>(sums[r * kColumns + lane]);
}

// Layout of `groups`: the beginning of each bin's entries and the end of all entries;
// then the entries.
void group_tokens(NativeStream stream, const GroupTokensArgs& args) {
  const std::int64_t n = args.tokens.shape[0];
  if (args.vocab == 0) return;
  MUO_CHECK(n < (std::int64_t{1} << kPositionBits), "group_tokens: ", n,
            " tokens, expected fewer than 2^", kPositionBits);
  const Bins bins(args.vocab);
  auto* starts = args.groups.as<std::int32_t>();
  launch(group_tokens_kernel, static_cast<unsigned>(bins.count()),
         static_cast<unsigned>(
             std::clamp<std::int64_t>(ceil_div(n, kWarp) * kWarp, kWarp, kGroupThreads)),
         0, stream, starts, starts + bins.count() + 1, args.tokens.as<std::int32_t>(),
         static_cast<int>(n), bins);
}

void embedding_backward(NativeStream stream, const EmbeddingBackwardArgs& args) {
  const std::int64_t v = args.dtable.shape[0], c = args.dtable.shape[1];
  if (v * c == 0) return;
  const Bins bins(v);
  const auto* starts = args.groups.as<std::int32_t>();
  const std::int32_t* entries = starts + bins.count() + 1;

  const std::int64_t groups = args.scale ? args.scale.shape[1] : 1;
  const std::int64_t width = c / groups;
  // A slab may begin and end in the middle of a group.
  const std::int64_t groups_in_a_slab = !args.scale ? 0
                                        : kColumns % width == 0 || width % kColumns == 0
                                            ? ceil_div(kColumns, width)
                                            : std::min(groups, ceil_div(kColumns, width) + 1);
  dispatch_packs(args.dy.dtype, c, {args.dy.data}, [&]<class T, int N>() {
    const std::int64_t bytes =
        (bins.rows(0) * kColumns + 2 * kStaged * groups_in_a_slab) * std::int64_t{sizeof(float)} +
        2 * kStaged * kColumns * std::int64_t{sizeof(T)};
    dispatch(args.dtable.dtype, [&]<class G>() {
      const Problem<G> p{.dtable = args.dtable.as<G>(),
                         .starts = starts,
                         .entries = entries,
                         .scale = data_or_null<float>(args.scale),
                         .bins = bins,
                         .c = static_cast<int>(c),
                         .groups = static_cast<int>(groups),
                         .width = static_cast<int>(width),
                         .groups_in_a_slab = static_cast<int>(groups_in_a_slab),
                         .accumulate = args.accumulate};
      launch(
          args.scale ? embedding_backward_kernel<T, G, N, true>
                     : embedding_backward_kernel<T, G, N, false>,
          dim3(static_cast<unsigned>(ceil_div(c, kColumns)), static_cast<unsigned>(bins.count())),
          kThreads, static_cast<std::size_t>(bytes), stream, args.dy.as<T>(), p);
    });
  });
}

const KernelRegistration registration(&embedding, &group_tokens, &embedding_backward);

}  // namespace
}  // namespace muo::cuda
