#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cross_entropy_impl.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/scratch.h"
#include "kernels/host/simd_bf16.h"

namespace muo::host {
namespace {

// Sums of fp32 terms go to a double after this many columns: 64 terms a lane.
constexpr std::int64_t kBlock = 64 * simd::kLanes;

// Above this a soft-capped row can hold exp(-2 softcap) that underflows, so the largest value is
// looked for.
constexpr float kLargestBound = 43.0F;

simd::F32 capped(simd::F32 x, simd::F32 cap, simd::F32 inverse_cap) {
  return cap * simd::tanh(x * inverse_cap);
}

// sum of exp(value(i) - shift); value(i, lanes) is called once per vector.
template <class Value>
double exp_sum(std::int64_t n, float shift, const Value& value) {
  const simd::F32 offset = simd::broadcast(shift);
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    simd::F32 block = simd::broadcast(0.0F);
    simd::for_lanes(std::min(kBlock, n - begin), [&](std::int64_t i, auto lanes) {
      const simd::F32 e = simd::exp(value(begin + i, lanes) - offset);
      block = block + simd::keep(e, lanes, simd::broadcast(0.0F));
    });
    total += simd::sum(simd::widen(block));
  }
  return total;
}

float largest(const float* z, std::int64_t n) {
  const simd::F32 lowest = simd::broadcast(-std::numeric_limits<float>::infinity());
  simd::F32 most = lowest;
  simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
    most = simd::max(most, simd::keep(simd::load(z + i, lanes), lanes, lowest));
  });
  return simd::max_of(most);
}

template <class T>
void soft_cap_row(T* logits, std::int64_t n, float softcap) {
  const simd::F32 cap = simd::broadcast(softcap);
  const simd::F32 inverse_cap = simd::broadcast(1.0F / softcap);
  simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
    simd::store(logits + i, capped(simd::load(logits + i, lanes), cap, inverse_cap), lanes);
  });
}

// The softmax of a row is exp(z - shift) / sum.
struct Softmax {
  float shift;
  double sum;
};

Softmax soft_capped(float* z, std::int64_t n, float softcap) {
  if (softcap > 0.0F && softcap <= kLargestBound) {
    // No value is above the cap, so it does for the largest one, and one pass is enough.
    const simd::F32 cap = simd::broadcast(softcap);
    const simd::F32 inverse_cap = simd::broadcast(1.0F / softcap);
    const double sum = exp_sum(n, softcap, [&](std::int64_t i, auto lanes) {
      const simd::F32 value = capped(simd::load(z + i, lanes), cap, inverse_cap);
      simd::store(z + i, value, lanes);
      return value;
    });
    return {softcap, sum};
  }
  if (softcap > 0.0F) soft_cap_row(z, n, softcap);
  const float shift = largest(z, n);
  return {shift,
          exp_sum(n, shift, [z](std::int64_t i, auto lanes) { return simd::load(z + i, lanes); })};
}

// z <- scale exp(z - shift) (1 - (z / softcap)^2), the last factor if kCapped.
template <bool kCapped>
void gradient_row(float* z, std::int64_t n, float shift, float scale, float softcap) {
  const simd::F32 offset = simd::broadcast(shift);
  const simd::F32 factor = simd::broadcast(scale);
  const simd::F32 inverse_cap = simd::broadcast(kCapped ? 1.0F / softcap : 0.0F);
  simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
    const simd::F32 value = simd::load(z + i, lanes);
    simd::F32 gradient = factor * simd::exp(value - offset);
    if constexpr (kCapped) {
      const simd::F32 t = value * inverse_cap;
      gradient = gradient * simd::fnma(t, t, simd::broadcast(1.0F));
    }
    simd::store(z + i, gradient, lanes);
  });
}

float row(float* logits, std::int32_t target, const CrossEntropyArgs& args) {
  const std::int64_t padded = args.logits.shape[1];
  if (target < 0) {
    if (args.write_gradient) std::fill_n(logits, padded, 0.0F);
    return 0.0F;
  }
  const Softmax softmax = soft_capped(logits, args.vocab, args.softcap);
  const double z = double{logits[target]} - double{softmax.shift};
  if (args.write_gradient) {
    const double probability = std::exp(z) / softmax.sum;
    const double t = args.softcap > 0.0F ? double{logits[target]} / double{args.softcap} : 0.0;
    const auto scale = static_cast<float>(double{args.gradient_scale} / softmax.sum);
    const auto gradient = args.softcap > 0.0F ? &gradient_row<true> : &gradient_row<false>;
    gradient(logits, args.vocab, softmax.shift, scale, args.softcap);
    logits[target] =
        static_cast<float>(double{args.gradient_scale} * (probability - 1.0) * (1.0 - t * t));
    std::fill(logits + args.vocab, logits + padded, 0.0F);
  }
  return static_cast<float>(std::log(softmax.sum) - z);
}

// bf16 logits of a row, widened: what one thread works on between the load and the only rounding.
float row(BF16* logits, std::int32_t target, const CrossEntropyArgs& args) {
  thread_local Scratch scratch;
  const std::int64_t padded = args.logits.shape[1];
  float* wide = scratch.floats(padded);
  simd::for_lanes(padded, [&](std::int64_t i, auto lanes) {
    simd::store(wide + i, simd::load(logits + i, lanes), lanes);
  });
  const float loss = row(wide, target, args);
  if (args.write_gradient)
    simd::for_lanes(padded, [&](std::int64_t i, auto lanes) {
      simd::store(logits + i, simd::load(wide + i, lanes), lanes);
    });
  return loss;
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args) {
  auto* losses = args.losses.as<float>();
  const auto* targets = args.targets.as<std::int32_t>();
  dispatch(args.logits.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < args.logits.shape[0]; ++i) {
      MUO_CHECK(-1 <= targets[i] && targets[i] < args.vocab, "cross_entropy: target ", targets[i],
                " at position ", i, " is outside [-1, ", args.vocab, ")");
      losses[i] = row(args.logits.as<T>() + i * args.logits.shape[1], targets[i], args);
    }
  });
}

void soft_cap(const SoftCapArgs& args) {
  if (args.softcap > 0.0F)
    dispatch(args.logits.dtype, [&]<class T>() {
      soft_cap_row(args.logits.as<T>(), args.logits.numel(), args.softcap);
    });
}

}  // namespace muo::host
