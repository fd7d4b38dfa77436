#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/index_check.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "runtime/cuda/ptx.h"

namespace muo::cuda {
namespace {

MUO_SHARED_MEMORY

constexpr int kMostThreads = 1024;
constexpr int kPack = kWidth<BF16>;  // columns that a thread takes at once, whatever the type
constexpr int kRowsPerBlock = 4;     // so that reading ahead pays; few, for an even load

// Packs of the next row that a thread holds: 64 bytes; of bf16, a block's are 32768 columns.
template <class T>
constexpr int kAhead = 8 / static_cast<int>(sizeof(T));

// No capped value is above the cap, so up to here the cap serves as the shift of the exponentials,
// and exp(-2 cap) is still a normal number. Above, the largest value is looked for.
constexpr float kLargestBound = 43.0F;

constexpr float kLog2e = 1.44269504F;

struct Problem {
  float* losses;
  const std::int32_t* targets;
  std::int64_t n;
  int vocab, padded;
  float softcap, gradient_scale;
  bool write_gradient;
};

// kPack neighbouring elements as they lie in memory.
template <class T>
struct RawPack {
  static constexpr int kWords = kPack * static_cast<int>(sizeof(T)) / 4;
  std::uint32_t words[kWords];
};

__device__ __forceinline__ Pack<kPack> widen(const RawPack<BF16>& raw) {
  Pack<kPack> out;
#pragma unroll
  for (int j = 0; j < kPack; ++j)
    out.v[j] =
        __uint_as_float(j % 2 == 0 ? raw.words[j / 2] << 16 : raw.words[j / 2] & 0xFFFF0000U);
  return out;
}
__device__ __forceinline__ Pack<kPack> widen(const RawPack<float>& raw) {
  Pack<kPack> out;
#pragma unroll
  for (int j = 0; j < kPack; ++j)
    out.v[j] = __uint_as_float(raw.words[j]);
  return out;
}

// kAligned: rows can be read 16 bytes at a time. What lies beyond the row's end is anything.
template <bool kAligned, class T>
__device__ __forceinline__ RawPack<T> load_raw(const T* row, int column, int padded) {
  RawPack<T> out;
  if constexpr (kAligned) {
    const auto* from = reinterpret_cast<const uint4*>(row + column);
#pragma unroll
    for (int k = 0; k < RawPack<T>::kWords / 4; ++k) {
      const uint4 raw = from[k];
      out.words[4 * k] = raw.x;
      out.words[4 * k + 1] = raw.y;
      out.words[4 * k + 2] = raw.z;
      out.words[4 * k + 3] = raw.w;
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const T value = row[min(column + j, padded - 1)];
      if constexpr (sizeof(T) == 4)
        out.words[j] = __float_as_uint(value);
      else if (j % 2 == 0)
        out.words[j / 2] = value.bits;
      else
        out.words[j / 2] |= std::uint32_t{value.bits} << 16;
    }
  }
  return out;
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

// The softmax of one row, as a thread goes through its columns. add() takes logits, the first
// `count` of them if not kWhole, and returns what the gradient is made of: the value that is kept.
// After finish(), which the whole block calls, the row's numbers are known to all threads.

// 0 < cap <= kLargestBound. With r = 1 / (1 + exp(2 x / cap)), tanh(x / cap) = 1 - 2 r, so
// z - cap = -2 cap r and 1 - (z / cap)^2 = 4 (r - r^2): an exponential, a reciprocal and an
// exponential per logit. The gradient is the kept exp(z - cap) (r - r^2), times a number of the
// row.
struct BoundedSoftmax {
  float to_r, to_exponent, double_cap, gradient_scale;
  float sum = 0.0F;
  float scale = 0.0F;

  __device__ explicit BoundedSoftmax(const Problem& p)
      : to_r(2.0F * kLog2e / p.softcap),
        to_exponent(-2.0F * kLog2e * p.softcap),
        double_cap(2.0F * p.softcap),
        gradient_scale(4.0F * p.gradient_scale) {}

  __device__ __forceinline__ float mark(float x) const {
    return __fdividef(1.0F, 1.0F + exp2_approximate(x * to_r));
  }
  template <bool kWhole>
  __device__ __forceinline__ Pack<kPack> add(Pack<kPack> x, int count) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const float r = mark(x.v[j]);
      const float e = exp2_approximate(to_exponent * r);
      if (kWhole || j < count) sum += e;
      x.v[j] = e * fmaf(-r, r, r);
    }
    return x;
  }
  __device__ __forceinline__ void finish() {
    sum = static_cast<float>(block_sum(static_cast<double>(sum)));
    scale = gradient_scale / sum;
  }
  __device__ __forceinline__ float loss(float r) const { return fmaf(double_cap, r, logf(sum)); }
  __device__ __forceinline__ float gradient(float value) const { return scale * value; }
  __device__ __forceinline__ float less_target(float gradient, float r) const {
    return fmaf(-gradient_scale, fmaf(-r, r, r), gradient);
  }
};

// Any cap or none (0). z is kept; the shift is the largest z so far, and what was summed is scaled
// down when a larger one comes.
struct OnlineSoftmax {
  float cap, inverse_cap, gradient_scale;
  float most = -INFINITY;
  float sum = 0.0F;
  float scale = 0.0F;

  __device__ explicit OnlineSoftmax(const Problem& p)
      : cap(p.softcap),
        inverse_cap(p.softcap > 0.0F ? 1.0F / p.softcap : 0.0F),
        gradient_scale(p.gradient_scale) {}

  __device__ __forceinline__ float mark(float x) const {
    return cap > 0.0F ? cap * tanhf(x * inverse_cap) : x;
  }
  template <bool kWhole>
  __device__ __forceinline__ Pack<kPack> add(Pack<kPack> x, int count) {
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
    if (highest > most) {
      sum *= exp_of_difference(most, highest);
      most = highest;
    }
    const float shift = most == -INFINITY ? 0.0F : most;
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      sum += exp_of_difference(x.v[j], shift);
    return x;
  }
  __device__ __forceinline__ void finish() {
    const float own = most;
    most = block_max(own);
    sum = static_cast<float>(block_sum(static_cast<double>(sum * exp_of_difference(own, most))));
    scale = gradient_scale / sum;
  }
  __device__ __forceinline__ float loss(float z) const { return logf(sum) + (most - z); }
  __device__ __forceinline__ float slope(float z) const {
    const float t = z * inverse_cap;  // 0 without a cap
    return fmaf(-t, t, 1.0F);
  }
  __device__ __forceinline__ float gradient(float z) const {
    return scale * exp_of_difference(z, most) * slope(z);
  }
  __device__ __forceinline__ float less_target(float gradient, float z) const {
    return fmaf(-gradient_scale, slope(z), gradient);
  }
};

// One block takes kRowsPerBlock rows, one after the other; a thread takes every blockDim.x-th pack
// of a row. What it needs for the gradient stays in shared memory (kKept), each thread reading what
// it wrote itself, so the row is read once and written once: 2 sizeof(T) bytes per element. While
// a row is summed, the first packs of the next are on their way into registers. Without a cap
// there are two exponentials per element: bound by bandwidth. With a cap there are three operations
// of the special function unit, 16 a clock: about as long as bf16 takes to come and go. A row that
// does not fit is read twice, and its values computed twice.
template <class T, class Softmax, bool kKept, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 1)
    cross_entropy_kernel(T* logits, const Problem p) {
  float4* const kept = shared_memory<float4>();
  __shared__ float at_target[2];  // the row's and the one before's, which threads may still read
  const int first = static_cast<int>(threadIdx.x) * kPack;
  const int stride = static_cast<int>(blockDim.x) * kPack;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kRowsPerBlock;
  const std::int64_t end = min(begin + kRowsPerBlock, p.n);
  int parity = 0;

  std::int64_t wrong = -1;  // a row whose target is; one thread says so at the end

  constexpr int kHeld = kAligned ? kAhead<T> : 0;  // rows of odd lengths are not worth registers
  RawPack<T> ahead[kHeld > 0 ? kHeld : 1];
  const auto fetch = [&](std::int64_t row, int k) {
    if (const int column = first + k * stride; column < p.vocab && row < end)
      ahead[k] = load_raw<kAligned>(logits + row * p.padded, column, p.padded);
  };
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    fetch(begin, k);
  std::int32_t next_target = p.targets[begin];

  for (std::int64_t row = begin; row < end; ++row) {
    T* x = logits + row * p.padded;
    const std::int32_t target = next_target;
    if (row + 1 < end) next_target = p.targets[row + 1];
    if (target == -1) {
      if (threadIdx.x == 0) p.losses[row] = 0.0F;
      if (p.write_gradient)
        for (int column = first; column < p.padded; column += stride)
          store_pack<kAligned>(x, column, Pack<kPack>{}, p.padded);
#pragma unroll
      for (int k = 0; k < kHeld; ++k)
        fetch(row + 1, k);
      continue;
    }

    Softmax softmax(p);
    const auto add = [&](const RawPack<T>& raw, int column, int k) {
      const Pack<kPack> logit = widen(raw);
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        if (column + j == target) at_target[parity] = softmax.mark(logit.v[j]);
      const Pack<kPack> values = column + kPack <= p.vocab
                                     ? softmax.template add<true>(logit, kPack)
                                     : softmax.template add<false>(logit, p.vocab - column);
      if (kKept && p.write_gradient) {
        float4* to = kept + 2 * k * blockDim.x + threadIdx.x;
        to[0] = make_float4(values.v[0], values.v[1], values.v[2], values.v[3]);
        to[blockDim.x] = make_float4(values.v[4], values.v[5], values.v[6], values.v[7]);
      }
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (const int column = first + k * stride; column < p.vocab) {
        const RawPack<T> raw = ahead[k];
        fetch(row + 1, k);
        add(raw, column, k);
      }
    for (int k = kHeld; first + k * stride < p.vocab; ++k)
      add(load_raw<kAligned>(x, first + k * stride, p.padded), first + k * stride, k);

    softmax.finish();
    const float mark = at_target[parity];
    parity ^= 1;
    if (threadIdx.x == 0) {
      p.losses[row] = softmax.loss(mark);
      if (target < -1 || target >= p.vocab) wrong = row;
    }
    if (!p.write_gradient) continue;
    for (int k = 0; first + k * stride < p.padded; ++k) {
      const int column = first + k * stride;
      Pack<kPack> gradient{};
      if (column < p.vocab) {
        if constexpr (kKept) {
          const float4* from = kept + 2 * k * blockDim.x + threadIdx.x;
          const float4 low = from[0];
          const float4 high = from[blockDim.x];
          gradient = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        } else {
          Softmax again(p);  // its sum is not used
          gradient =
              again.template add<true>(widen(load_raw<kAligned>(x, column, p.padded)), kPack);
        }
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          float g = softmax.gradient(gradient.v[j]);
          if (column + j == target) g = softmax.less_target(g, mark);
          gradient.v[j] = column + j < p.vocab ? g : 0.0F;
        }
      }
      store_pack<kAligned>(x, column, gradient, p.padded);
    }
  }
  if (wrong >= 0) stop_at_index("cross_entropy: target", p.targets[wrong], wrong, -1, p.vocab);
}

template <class T, class Softmax>
void launch_cross_entropy(NativeStream stream, T* logits, const Problem& p) {
  const std::int64_t packs = ceil_div(p.padded, kPack);
  const std::int64_t threads = std::min<std::int64_t>(ceil_div(packs, kWarp) * kWarp, kMostThreads);
  const std::int64_t bytes =
      ceil_div(packs, threads) * threads * kPack * std::int64_t{sizeof(float)};
  const bool aligned = vectors_fit<BF16>(p.padded, {logits});
  const auto keeping = cross_entropy_kernel<T, Softmax, true, true>;
  const bool fits = aligned && bytes <= most_shared_bytes(keeping);
  launch(fits      ? keeping
         : aligned ? cross_entropy_kernel<T, Softmax, false, true>
                   : cross_entropy_kernel<T, Softmax, false, false>,
         blocks_for(p.n, kRowsPerBlock), static_cast<unsigned>(threads),
         fits && p.write_gradient ? static_cast<std::size_t>(bytes) : 0, stream, logits, p);
}

void cross_entropy(NativeStream stream, const CrossEntropyArgs& args) {
  const std::int64_t padded = args.logits.shape[1];
  if (args.logits.shape[0] == 0) return;
  const Problem p{.losses = args.losses.as<float>(),
                  .targets = args.targets.as<std::int32_t>(),
                  .n = args.logits.shape[0],
                  .vocab = static_cast<int>(args.vocab),
                  .padded = static_cast<int>(padded),
                  .softcap = args.softcap,
                  .gradient_scale = args.gradient_scale,
                  .write_gradient = args.write_gradient};
  dispatch(args.logits.dtype, [&]<class T>() {
    if (p.softcap > 0.0F && p.softcap <= kLargestBound)
      launch_cross_entropy<T, BoundedSoftmax>(stream, args.logits.as<T>(), p);
    else
      launch_cross_entropy<T, OnlineSoftmax>(stream, args.logits.as<T>(), p);
  });
}

// Element-wise (elementwise.h), for sampling: 2 sizeof(T) bytes per element; tanhf's some 20
// instructions are about as long.
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
