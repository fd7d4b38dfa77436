#include "kernels/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
#include "kernels/host/scratch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// After this many columns, i.e. 64 terms per lane, fp32 sums are added to a double.
constexpr std::int64_t kBlock = 64 * simd::kLanes;

// Up to this softcap, the cap itself is the softmax's shift. With a larger cap, the values exp(-2
// softcap) (1 - tanh^2) may underflow, so the shift is the largest logit.
constexpr float kMaxCapShift = 35.0F;

// A column's term in the sum of the softmax, and the derivative of that term by the logit.
struct Term {
  simd::F32 exponential;
  simd::F32 gradient;  // the exponential times the derivative of its exponent
};

class SoftCap {
 public:
  explicit SoftCap(float softcap)
      : cap_(simd::broadcast(softcap)),
        inverse_(simd::broadcast(1.0F / softcap)),
        doubled_(simd::broadcast(2.0F * kLog2E / softcap)),
        lowest_(simd::broadcast(-kLog2E * softcap)) {}
  [[nodiscard]] simd::F32 value(simd::F32 x) const { return cap_ * simd::tanh(x * inverse_); }
  // The derivative of value(x) by x.
  [[nodiscard]] simd::F32 derivative(simd::F32 value) const {
    const simd::F32 t = value * inverse_;
    return simd::fnma(t, t, simd::broadcast(1.0F));
  }
  // The term exp(value(x) - softcap) = exp(-softcap r), with r = 1 - tanh =
  // 2 / (exp(2 x / softcap) + 1) and 1 - tanh^2 = r (2 - r), so tanh need not be computed.
  [[nodiscard]] Term below_cap(simd::F32 x) const {
    const simd::F32 two = simd::broadcast(2.0F);
    const simd::F32 u = simd::exp2(simd::min(simd::broadcast(127.0F), x * doubled_));
    const simd::F32 r = two / (u + simd::broadcast(1.0F));
    const simd::F32 e = simd::exp2(lowest_ * r);
    return {e, e * (r * (two - r))};
  }

 private:
  static constexpr float kLog2E = std::numbers::log2e_v<float>;
  simd::F32 cap_, inverse_, doubled_, lowest_;
};

// Replaces x by the gradients of term(x), which reuse the exponentials of the terms. Returns the
// sum of the exponentials.
template <class TermOf>
double exponentiate(float* x, std::int64_t n, const TermOf& term) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    simd::F32 block = simd::broadcast(0.0F);
    simd::for_lanes(std::min(kBlock, n - begin), [&](std::int64_t i, auto lanes) {
      const auto [exponential, gradient] = term(simd::load(x + begin + i, lanes));
      block = block + simd::keep(exponential, lanes, simd::broadcast(0.0F));
      simd::store(x + begin + i, gradient, lanes);
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
  const SoftCap cap(softcap);
  simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
    simd::store(logits + i, cap.value(simd::load(logits + i, lanes)), lanes);
  });
}

// The softmax of a row is exp(z - shift) / sum.
struct Softmax {
  float shift;
  float target;  // z of the target
  double sum;
};

// Replaces `logits` by the gradient of a row, without its common factor and the target's term.
Softmax softmax(float* logits, std::int64_t n, std::int64_t target, float softcap) {
  const SoftCap cap(softcap);
  if (0.0F < softcap && softcap <= kMaxCapShift) {
    // No value exceeds the cap, so it replaces the maximum, and one pass is enough.
    std::array<float, simd::kLanes> at_target;
    simd::store(at_target.data(), cap.value(simd::broadcast(logits[target])));
    const auto term = [&](simd::F32 x) { return cap.below_cap(x); };
    return {softcap, at_target[0], exponentiate(logits, n, term)};
  }
  if (softcap > 0.0F) soft_cap_row(logits, n, softcap);
  const float shift = largest(logits, n);
  const float at_target = logits[target];
  const simd::F32 offset = simd::broadcast(shift);
  const double sum = exponentiate(logits, n, [&](simd::F32 z) -> Term {
    const simd::F32 e = simd::exp(z - offset);
    return {e, softcap > 0.0F ? e * cap.derivative(z) : e};
  });
  return {shift, at_target, sum};
}

float row(float* logits, std::int64_t target, const CrossEntropyArgs& args) {
  const std::int64_t padded = args.logits.shape[1];
  if (target < 0) {
    if (args.gradient_scale) std::fill_n(logits, padded, 0.0F);
    return 0.0F;
  }
  const auto [shift, at_target, sum] = softmax(logits, args.vocab, target, args.softcap);
  const double z = double{at_target} - double{shift};
  if (args.gradient_scale) {
    const double gradient_scale = *args.gradient_scale.as<float>();
    const double probability = std::exp(z) / sum;
    const double t = args.softcap > 0.0F ? double{at_target} / double{args.softcap} : 0.0;
    simd::scale(logits, static_cast<float>(gradient_scale / sum), logits, args.vocab);
    logits[target] = static_cast<float>(gradient_scale * (probability - 1.0) * (1.0 - t * t));
    std::fill(logits + args.vocab, logits + padded, 0.0F);
  }
  return static_cast<float>(std::log(sum) - z);
}

// The same for a row of bf16 logits, which is widened and rounded once, at the end.
float row(BF16* logits, std::int64_t target, const CrossEntropyArgs& args) {
  thread_local Scratch scratch;
  const std::int64_t padded = args.logits.shape[1];
  float* wide = scratch.floats(padded);
  simd::copy(wide, logits, padded);
  const float loss = row(wide, target, args);
  if (args.gradient_scale) simd::copy(logits, wide, padded);
  return loss;
}

void cross_entropy(const CrossEntropyArgs& args) {
  auto* losses = args.losses.as<float>();
  dispatch(args.logits.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < args.logits.shape[0]; ++i) {
      const std::int64_t target =
          index_at(args.targets, i, "cross_entropy: target", -1, args.vocab);
      losses[i] = row(args.logits.as<T>() + i * args.logits.shape[1], target, args);
    }
  });
}

void soft_cap(const SoftCapArgs& args) {
  if (args.softcap > 0.0F)
    dispatch(args.logits.dtype, [&]<class T>() {
      soft_cap_row(args.logits.as<T>(), args.logits.numel(), args.softcap);
    });
}

const KernelRegistration kRegistration(&cross_entropy, &soft_cap);

}  // namespace
}  // namespace muo::host
