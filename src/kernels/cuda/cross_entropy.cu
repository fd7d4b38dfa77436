#include <algorithm>
#include <cfloat>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/index_check.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "runtime/cuda/ptx.h"
#include "runtime/cuda/stream_context.h"

namespace muo::cuda {
namespace {

MUO_SHARED_MEMORY

constexpr int kMaxThreads = 512;
constexpr int kPack = kWidth<BF16>;  // columns that a thread processes at once, for every type
constexpr int kHeld = 8;             // packs that a thread keeps in registers: 32768 columns
constexpr int kMaxRows = 16;         // per block: more rows hide the first read, fewer balance load

// Up to this softcap, the cap itself is the softmax's shift: no value exceeds it, and exp(-2 cap)
// is still a normal number. With a larger cap, the shift is the largest value.
constexpr float kMaxCapShift = 43.0F;

constexpr float kLog2e = 1.44269504F;

struct Problem {
  float* losses;
  const std::int32_t* targets;
  int n, vocab, padded;
  float softcap;
  const float* gradient_scale;  // null: losses only
  int each = 0, more = 0;       // a block has `each` rows, the first `more` blocks one more
};

// kPack consecutive elements in their storage format, in accesses of 16 bytes.
template <class T>
struct RawPack {
  static constexpr int kPieces = kPack / kWidth<T>;
  uint4 pieces[kPieces];
};

__device__ __forceinline__ Pack<kPack> widen(const RawPack<BF16>& raw) {
  const std::uint32_t words[] = {raw.pieces[0].x, raw.pieces[0].y, raw.pieces[0].z,
                                 raw.pieces[0].w};
  Pack<kPack> out;
#pragma unroll
  for (int j = 0; j < kPack; ++j)
    out.v[j] = __uint_as_float(j % 2 == 0 ? words[j / 2] << 16 : words[j / 2] & 0xFFFF0000U);
  return out;
}
__device__ __forceinline__ Pack<kPack> widen(const RawPack<float>& raw) {
  Pack<kPack> out;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    out.v[4 * k] = __uint_as_float(raw.pieces[k].x);
    out.v[4 * k + 1] = __uint_as_float(raw.pieces[k].y);
    out.v[4 * k + 2] = __uint_as_float(raw.pieces[k].z);
    out.v[4 * k + 3] = __uint_as_float(raw.pieces[k].w);
  }
  return out;
}

// kAligned: rows can be read 16 bytes at a time. Elements beyond the row's end are unspecified.
template <bool kAligned, class T>
__device__ __forceinline__ Pack<kPack> load_pack(const T* row, int column, int padded) {
  if constexpr (kAligned) {
    return load_wide<kPack>(row + column);
  } else {
    Pack<kPack> out;
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      out.v[j] = to_float(row[min(column + j, padded - 1)]);
    return out;
  }
}

template <bool kAligned, class T>
__device__ __forceinline__ void store_pack(T* row, int column, const Pack<kPack>& values,
                                           int padded) {
  if constexpr (kAligned) {
    store_wide(row + column, values);
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      if (column + j < padded) row[column + j] = from_float<T>(values.v[j]);
  }
}

__device__ __forceinline__ float exp_of_difference(float a, float b) {
  return exp2_approximate((a - b) * kLog2e);
}

// Softmax classes hold constants that are common to all rows. A Row is a thread's partial result
// for one row; finish(), which the whole block calls, replaces it with the block's result. add()
// takes logits (only the first `count` of them unless kWhole) and returns the values to keep, from
// which gradient() computes the gradient.

// For 0 < cap <= kMaxCapShift. With r = 1 / (1 + exp(2 x / cap)), tanh(x / cap) = 1 - 2 r, hence z
// - cap = -2 cap r and 1 - (z / cap)^2 = 4 (r - r^2): two exponentials and a reciprocal per logit.
// The gradient is the kept exp(z - cap) (r - r^2) times a factor of the row.
struct BoundedSoftmax {
  struct Row {
    float sum = 0.0F;
    float scale = 0.0F;
  };
  float to_r, to_exponent, double_cap;
  const float* gradient_scale;

  explicit BoundedSoftmax(const Problem& p)
      : to_r(2.0F * kLog2e / p.softcap),
        to_exponent(-2.0F * kLog2e * p.softcap),
        double_cap(2.0F * p.softcap),
        gradient_scale(p.gradient_scale) {}

  __device__ __forceinline__ float gradient_factor() const {
    return gradient_scale == nullptr ? 0.0F : 4.0F * *gradient_scale;
  }

  __device__ __forceinline__ float mark(float x) const {
    return reciprocal_approximate(1.0F + exp2_approximate(x * to_r));
  }
  __device__ __forceinline__ float exponential(float r) const {
    return exp2_approximate(to_exponent * r);
  }
  template <bool kWhole>
  __device__ __forceinline__ Pack<kPack> add(Row& row, Pack<kPack> x, int count) const {
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const float r = mark(x.v[j]);
      const float e = exponential(r);
      if (kWhole || j < count) row.sum += e;
      x.v[j] = e * fmaf(-r, r, r);
    }
    return x;
  }
  __device__ __forceinline__ void finish(Row& row) const {
    row.sum = static_cast<float>(block_sum(static_cast<double>(row.sum)));
    row.scale = gradient_factor() / row.sum;
  }
  __device__ __forceinline__ float loss(const Row& row, float r) const {
    return fmaf(double_cap, r, logf(row.sum));
  }
  __device__ __forceinline__ float gradient(const Row& row, float value) const {
    return row.scale * value;
  }
  __device__ __forceinline__ float gradient_at_target(const Row& row, float r) const {
    return (row.scale * exponential(r) - gradient_factor()) * fmaf(-r, r, r);
  }
};

// For any cap, or none (0). z is kept; the shift is the largest z so far, and the sum is scaled
// down when a larger one occurs.
struct OnlineSoftmax {
  struct Row {
    float most = -FLT_MAX;  // not -infinity, because two of these are subtracted
    float sum = 0.0F;
    float scale = 0.0F;
  };
  float cap, inverse_cap;
  const float* gradient_scale;

  explicit OnlineSoftmax(const Problem& p)
      : cap(p.softcap),
        inverse_cap(p.softcap > 0.0F ? 1.0F / p.softcap : 0.0F),
        gradient_scale(p.gradient_scale) {}

  __device__ __forceinline__ float gradient_factor() const {
    return gradient_scale == nullptr ? 0.0F : *gradient_scale;
  }
  __device__ __forceinline__ float mark(float x) const {
    return cap > 0.0F ? cap * tanhf(x * inverse_cap) : x;
  }
  template <bool kWhole>
  __device__ __forceinline__ Pack<kPack> add(Row& row, Pack<kPack> x, int count) const {
    if (cap > 0.0F)
#pragma unroll
      for (float& v : x.v)
        v = mark(v);
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      if (!kWhole && j >= count) x.v[j] = -INFINITY;
      highest = fmaxf(highest, x.v[j]);
    }
    if (highest > row.most) {
      row.sum *= exp_of_difference(row.most, highest);
      row.most = highest;
    }
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      row.sum += exp_of_difference(x.v[j], row.most);
    return x;
  }
  // Reduces maximum and sum together, with two barriers in total.
  __device__ __forceinline__ void finish(Row& row) const {
    __shared__ float max_of_warps[32];
    __shared__ double sum_of_warps[32];
    const unsigned lane = threadIdx.x % 32;
    const bool one = lane < blockDim.x / 32;
    float most = warp_max(row.most);
    double sum = warp_sum(static_cast<double>(row.sum * exp_of_difference(row.most, most)));
    if (lane == 0) {
      max_of_warps[threadIdx.x / 32] = most;
      sum_of_warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    most = one ? max_of_warps[lane] : -FLT_MAX;
    sum = one ? sum_of_warps[lane] : 0.0;
    row.most = warp_max(most);
    row.sum =
        static_cast<float>(warp_sum(sum * static_cast<double>(exp_of_difference(most, row.most))));
    row.scale = gradient_factor() / row.sum;
    __syncthreads();
  }
  __device__ __forceinline__ float loss(const Row& row, float z) const {
    return logf(row.sum) + (row.most - z);
  }
  __device__ __forceinline__ float slope(float z) const {
    const float t = z * inverse_cap;  // 0 without a cap
    return fmaf(-t, t, 1.0F);
  }
  __device__ __forceinline__ float gradient(const Row& row, float z) const {
    return row.scale * exp_of_difference(z, row.most) * slope(z);
  }
  __device__ __forceinline__ float gradient_at_target(const Row& row, float z) const {
    return fmaf(-gradient_factor(), slope(z), gradient(row, z));
  }
};

template <class Softmax>
__device__ __forceinline__ Pack<kPack> add_pack(const Softmax& softmax, typename Softmax::Row& row,
                                                const Pack<kPack>& logits, int column, int vocab) {
  return column + kPack <= vocab ? softmax.template add<true>(row, logits, kPack)
                                 : softmax.template add<false>(row, logits, vocab - column);
}

// A row's results, from which its gradient is computed.
template <class Softmax>
struct Summed {
  typename Softmax::Row row;
  int target;
  float at_target;  // gradient at the target
};

// All threads of the block must call it before any of them writes the row.
template <class Softmax, class T>
__device__ __forceinline__ Summed<Softmax> finish_row(const Softmax& softmax,
                                                      typename Softmax::Row sums, const T* x,
                                                      std::int64_t row, const Problem& p) {
  const int target = p.targets[row];
  const bool inside = 0 <= target && target < p.vocab;
  const float logit = inside ? to_float(x[target]) : 0.0F;
  softmax.finish(sums);
  const float mark = softmax.mark(logit);
  if (threadIdx.x == 0) {
    p.losses[row] = softmax.loss(sums, mark);
    if (!inside) stop_at_index("cross_entropy: target", target, row, -1, p.vocab);
  }
  return {sums, target, softmax.gradient_at_target(sums, mark)};
}

template <bool kAligned, class T, class Softmax>
__device__ __forceinline__ void put_gradient(T* row, int column, Pack<kPack> kept,
                                             const Softmax& softmax, const Summed<Softmax>& summed,
                                             const Problem& p) {
#pragma unroll
  for (float& v : kept.v)
    v = softmax.gradient(summed.row, v);
  if (column + kPack > p.vocab)
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      if (column + j >= p.vocab) kept.v[j] = 0.0F;
  store_pack<kAligned>(row, column, kept, p.padded);
  if (static_cast<unsigned>(summed.target - column) < unsigned{kPack})
    row[summed.target] = from_float<T>(summed.at_target);
}

// Writes loss and gradient of a row whose target is -1.
template <bool kAligned, class T>
__device__ __forceinline__ void write_ignored_row(T* row, float& loss, const Problem& p) {
  if (threadIdx.x == 0) loss = 0.0F;
  if (p.gradient_scale == nullptr) return;
  for (int column = static_cast<int>(threadIdx.x) * kPack; column < p.padded;
       column += static_cast<int>(blockDim.x) * kPack)
    store_pack<kAligned>(row, column, Pack<kPack>{}, p.padded);
}

// Each block processes up to kMaxRows consecutive rows, one after the other; a thread takes every
// blockDim.x-th pack of a row. A row is read once and written once: 2 sizeof(T) bytes per element.
// The values kept for the gradient stay in registers, except those of packs from kHeld on, which
// stay in shared memory. After a thread has read a pack from shared memory, it starts to copy the
// same pack of the next row, so reads continue while the sums of a row are reduced. No barrier is
// needed, because no other thread reads that pack. The gradient of a row is written pack by pack
// while the next row's logits are processed, so stores overlap with the special function unit. That
// unit performs 16 operations per clock, and a logit takes three with a cap, else two: on an H100,
// two thirds of the time that reading and writing bf16 takes, so the kernel is bound by bandwidth.
template <class T, class Softmax>
__global__ void __launch_bounds__(kMaxThreads, 1)
    cross_entropy_kernel(T* logits, const Problem p, const Softmax softmax) {
  using Raw = RawPack<T>;
  const int threads = static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x) * kPack;
  const int packs = (p.padded + threads * kPack - 1) / (threads * kPack);  // per thread
  uint4* const slots = shared_memory<uint4>() + threadIdx.x;  // used by this thread only
  auto* const kept = reinterpret_cast<float4*>(slots + packs * Raw::kPieces * threads);
  const int block = static_cast<int>(blockIdx.x);
  const int begin = block * p.each + min(block, p.more);
  const int end = begin + p.each + (block < p.more ? 1 : 0);

  const auto row_at = [&](int row) { return logits + std::int64_t{row} * p.padded; };
  // Returns the first row from `row` on that has a target; finishes the rows before it.
  const auto skip = [&](int row) {
    for (; row < end && p.targets[row] == -1; ++row)
      write_ignored_row<true>(row_at(row), p.losses[row], p);
    return row;
  };
  const auto fetch = [&](int row, int column, int k) {
    if (row >= end || column >= p.vocab) return;
#pragma unroll
    for (int i = 0; i < Raw::kPieces; ++i)
      copy_async_16(shared_address(slots + (k * Raw::kPieces + i) * threads),
                    row_at(row) + column + i * kWidth<T>, true);
  };

  int row = skip(begin);
  for (int k = 0; k < max(packs, kHeld); ++k) {
    fetch(row, first + k * threads * kPack, k);
    copy_async_commit();
  }
  Pack<kPack> held[kHeld];
  Summed<Softmax> summed{};
  int unwritten = -1;  // the row of `summed` whose values are kept
  for (;;) {
    const int next = skip(row + 1);
    typename Softmax::Row sums;
    const auto take = [&](int k, Pack<kPack>& values) {
      int column = first + k * threads * kPack;
      compute_here(column);
      if (unwritten >= 0 && column < p.padded)
        put_gradient<true>(row_at(unwritten), column, values, softmax, summed, p);
      if (row < end && column < p.vocab) {
        copy_async_wait<kHeld - 1>();  // a row has at least kHeld groups
        Raw raw;
#pragma unroll
        for (int i = 0; i < Raw::kPieces; ++i)
          raw.pieces[i] = slots[(k * Raw::kPieces + i) * threads];
        values = add_pack(softmax, sums, widen(raw), column, p.vocab);
        fetch(next, column, k);
      }
      copy_async_commit();
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      take(k, held[k]);
    for (int k = kHeld; k < packs; ++k) {
      float4* const at = kept + 2 * (k - kHeld) * threads;
      const float4 low = at[0];
      const float4 high = at[threads];
      Pack<kPack> values{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      take(k, values);
      at[0] = make_float4(values.v[0], values.v[1], values.v[2], values.v[3]);
      at[threads] = make_float4(values.v[4], values.v[5], values.v[6], values.v[7]);
    }
    if (row >= end) return;  // this iteration only wrote the last row's gradients
    summed = finish_row(softmax, sums, row_at(row), row, p);
    if (p.gradient_scale != nullptr) unwritten = row;
    row = next;
  }
}

// For rows whose lengths or addresses are unaligned, and for rows that shared memory is too small
// for: one block per row. Rows are read twice, and their values computed twice.
template <class T, class Softmax, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads, 2)
    cross_entropy_twice_kernel(T* logits, const Problem p, const Softmax softmax) {
  const int first = static_cast<int>(threadIdx.x) * kPack;
  const int stride = static_cast<int>(blockDim.x) * kPack;
  const std::int64_t row = blockIdx.x;
  T* const x = logits + row * p.padded;
  if (p.targets[row] == -1) return write_ignored_row<kAligned>(x, p.losses[row], p);
  const auto take = [&](typename Softmax::Row& sums, int column) {
    return add_pack(softmax, sums, load_pack<kAligned>(x, column, p.padded), column, p.vocab);
  };
  typename Softmax::Row sums;
  for (int column = first; column < p.vocab; column += stride)
    take(sums, column);
  const Summed<Softmax> summed = finish_row(softmax, sums, x, row, p);
  if (p.gradient_scale == nullptr) return;
  for (int column = first; column < p.padded; column += stride) {
    typename Softmax::Row again;  // not used
    put_gradient<kAligned>(x, column, take(again, column), softmax, summed, p);
  }
}

// Returns the number of blocks that balances the load of all multiprocessors, with at most
// kMaxRows rows per block.
unsigned blocks_of_rows(NativeStream stream, int n) {
  int multiprocessors = 0;
  MUO_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                        context_of(stream).device));
  const std::int64_t rounds = ceil_div(n, std::int64_t{multiprocessors} * kMaxRows);
  return blocks_for(std::min<std::int64_t>(n, rounds * multiprocessors), 1);
}

template <class T, class Softmax>
void launch_cross_entropy(NativeStream stream, T* logits, Problem p) {
  const std::int64_t packs = ceil_div(p.padded, kPack);
  const std::int64_t threads = std::min<std::int64_t>(ceil_div(packs, kWarp) * kWarp, kMaxThreads);
  const std::int64_t each = ceil_div(packs, threads);
  const std::int64_t in_shared = std::max<std::int64_t>(each - kHeld, 0);
  const std::int64_t bytes =
      threads * kPack * (each * std::int64_t{sizeof(T)} + in_shared * std::int64_t{sizeof(float)});
  const bool aligned = vectors_fit<BF16>(p.padded, {logits});
  const auto once = cross_entropy_kernel<T, Softmax>;
  const auto start = [&](auto* kernel, unsigned blocks, std::int64_t shared) {
    launch(kernel, blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(shared), stream,
           logits, p, Softmax(p));
  };
  if (aligned && bytes <= max_shared_bytes(once)) {
    const unsigned blocks = blocks_of_rows(stream, p.n);
    p.each = p.n / static_cast<int>(blocks);
    p.more = p.n % static_cast<int>(blocks);
    start(once, blocks, bytes);
  } else {
    start(aligned ? cross_entropy_twice_kernel<T, Softmax, true>
                  : cross_entropy_twice_kernel<T, Softmax, false>,
          static_cast<unsigned>(p.n), 0);
  }
}

void cross_entropy(NativeStream stream, const CrossEntropyArgs& args) {
  const std::int64_t padded = args.logits.shape[1];
  const std::int64_t n = args.logits.shape[0];
  if (n == 0) return;
  MUO_CHECK(n <= INT32_MAX, "cross_entropy: ", n, " rows, expected at most ", INT32_MAX);
  const Problem p{.losses = args.losses.as<float>(),
                  .targets = args.targets.as<std::int32_t>(),
                  .n = static_cast<int>(n),
                  .vocab = static_cast<int>(args.vocab),
                  .padded = static_cast<int>(padded),
                  .softcap = args.softcap,
                  .gradient_scale = data_or_null<float>(args.gradient_scale)};
  dispatch(args.logits.dtype, [&]<class T>() {
    if (p.softcap > 0.0F && p.softcap <= kMaxCapShift)
      launch_cross_entropy<T, BoundedSoftmax>(stream, args.logits.as<T>(), p);
    else
      launch_cross_entropy<T, OnlineSoftmax>(stream, args.logits.as<T>(), p);
  });
}

// Element-wise (elementwise.h), for sampling: 2 sizeof(T) bytes per element. The 20 or so
// instructions of tanhf take about as long.
struct SoftCap {
  static constexpr int kPacks = 2;
  float cap, inverse_cap;
  __device__ __forceinline__ float operator()(float x) const {
    return cap * tanhf(x * inverse_cap);
  }
};

void soft_cap(NativeStream stream, const SoftCapArgs& args) {
  if (args.softcap <= 0.0F) return;
  dispatch(args.logits.dtype, [&]<class T>() {
    launch_map(stream, args.logits.numel(), SoftCap{args.softcap, 1.0F / args.softcap},
               args.logits.as<T>(), args.logits.as<T>());
  });
}

const KernelRegistration registration(&cross_entropy, &soft_cap);

}  // namespace
}  // namespace muo::cuda
