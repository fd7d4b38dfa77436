#include "kernels/reduce.h"

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// Sums x in doubles. `add(accumulator, x)` returns the new accumulator; it must leave lanes
// unchanged in which x is 0.
template <class T, class Add>
double reduce(const T* x, std::int64_t n, const Add& add) {
  constexpr std::int64_t kStep = 2 * simd::kLanes;
  simd::F64 a = simd::zero_f64();
  simd::F64 b = simd::zero_f64();
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    a = add(a, simd::widen(simd::load(x + i)));
    b = add(b, simd::widen(simd::load(x + i + simd::kLanes)));
  }
  simd::for_lanes(n - i, [&](std::int64_t j, auto lanes) {
    a = add(a, simd::widen(simd::load(x + i + j, lanes)));
  });
  return simd::sum(a + b);
}

void put(double* out, bool accumulate, double value) { *out = accumulate ? *out + value : value; }

void sum(const SumArgs& args) {
  const auto add = [](simd::F64 a, simd::F64 x) { return a + x; };
  const double scale = args.scale ? double{*args.scale.as<float>()} : 1.0;
  put(args.out.as<double>(), args.accumulate,
      scale * reduce(args.x.as<float>(), args.x.numel(), add));
}

void sum_squares(const SumSquaresArgs& args) {
  const auto add = [](simd::F64 a, simd::F64 x) { return simd::fma(x, x, a); };
  dispatch(args.x.dtype, [&]<class T>() {
    put(args.out.as<double>(), args.accumulate, reduce(args.x.as<T>(), args.x.numel(), add));
  });
}

void loss_totals(const LossTotalsArgs& args) {
  const std::int64_t vocab = args.bytes.shape[0];
  const auto* losses = args.losses.as<float>();
  const auto* targets = args.targets.as<std::int32_t>();
  const auto* bytes = args.bytes.as<std::int32_t>();
  double nats = 0;
  double nats_of_text = 0;
  std::int64_t count = 0;
  std::int64_t text = 0;
  for (std::int64_t i = 0; i < args.losses.shape[0]; ++i) {
    if (targets[i] < 0) continue;
    const std::int64_t target = index_at(args.targets, i, "loss_totals: target", -1, vocab);
    const double loss{losses[i]};
    nats += loss;
    ++count;
    if (bytes[target] <= 0) continue;
    nats_of_text += loss;
    text += bytes[target];
  }
  auto* out = args.out.as<double>();
  out[0] += nats;
  out[1] += static_cast<double>(count);
  out[2] += nats_of_text;
  out[3] += static_cast<double>(text);
}

const KernelRegistration kRegistration(&sum, &sum_squares, &loss_totals);

}  // namespace
}  // namespace muo::host
