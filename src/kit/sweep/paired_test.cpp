#include "kit/sweep/paired_test.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace muo::kit {
namespace {

// The p of `pairs` pairs with the test's mean and deviation. Without a deviation, as for runs with
// equal losses, t is 0 or infinite.
double p_of(const PairedTest& test, int pairs) {
  const double t = test.mean == 0 ? 0 : std::abs(test.mean) * std::sqrt(pairs) / test.deviation;
  return two_sided_p(t, pairs - 1);
}

}  // namespace

double two_sided_p(double t, int freedom) {
  const double n = freedom;
  const double angle = std::atan(std::abs(t) / std::sqrt(n));
  const double cosine = std::cos(angle), square = cosine * cosine;
  // The terms of the series have even powers of the cosine for even n and odd ones for odd n.
  const bool odd = freedom % 2 != 0;
  double term = odd ? cosine : 1, sum = 0;
  for (int power = odd ? 1 : 0; power <= freedom - 2; power += 2) {
    sum += term;
    term *= square * (power + 1.0) / (power + 2.0);
  }
  const double inside =
      odd ? (angle + std::sin(angle) * sum) * 2 / std::numbers::pi : std::sin(angle) * sum;
  return std::clamp(1 - inside, 0.0, 1.0);
}

double critical_t(double p, int freedom) {
  double low = 0, high = 1;
  while (two_sided_p(high, freedom) > p && high < 1e12)
    high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (two_sided_p(middle, freedom) > p ? low : high) = middle;
  }
  return high;
}

PairedTest paired_test(std::span<const double> differences, double alpha) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto n = static_cast<double>(differences.size());
  PairedTest out{
      .pairs = static_cast<int>(differences.size()), .low = -kInfinity, .high = kInfinity};
  if (differences.empty()) return out;
  out.mean = std::accumulate(differences.begin(), differences.end(), 0.0) / n;
  if (out.pairs < 2) return out;
  for (const double each : differences)
    out.deviation += (each - out.mean) * (each - out.mean);
  out.deviation = std::sqrt(out.deviation / (n - 1));
  const double margin = critical_t(alpha, out.pairs - 1) * out.deviation / std::sqrt(n);
  out.low = out.mean - margin;
  out.high = out.mean + margin;
  out.p = p_of(out, out.pairs);
  if (out.p < alpha) out.judgement = out.mean < 0 ? Judgement::kLower : Judgement::kHigher;
  return out;
}

std::optional<int> pairs_needed(const PairedTest& test, double alpha) {
  if (test.pairs < 2 || !(p_of(test, kMaxPairs) < alpha)) return std::nullopt;
  int low = 1, high = kMaxPairs;  // too few, enough
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (p_of(test, middle) < alpha ? high : low) = middle;
  }
  return high;
}

}  // namespace muo::kit
