#include "kit/report/decimate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace muo::kit {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// The points to keep among those from `begin` to `end`, and the mean of all of them.
struct Bucket {
  std::size_t low = kNone, high = kNone, gap = kNone;
  double sum = 0;
  std::size_t finite = 0;

  Bucket(std::span<const double> y, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(y[i])) {
        if (gap == kNone) gap = i;
        continue;
      }
      if (low == kNone || y[i] < y[low]) low = i;
      if (high == kNone || y[i] > y[high]) high = i;
      sum += y[i];
      ++finite;
    }
  }
};

// Returns a quantile and reorders the values: sorting a million of them would dominate the time to
// make a page.
double quantile(std::vector<double>& values, double share) {
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + std::lround(share * last);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace

DrawnCurve decimate(std::span<const std::int64_t> x, std::span<const double> y, std::size_t most) {
  MUO_CHECK(x.size() == y.size() && most >= 4, "decimate: ", x.size(), " x, ", y.size(),
            " y, at most ", most, " points");
  DrawnCurve out;
  const std::size_t n = x.size();
  const auto keep = [&](std::size_t i) {
    out.points.x.push_back(x[i]);
    out.points.y.push_back(y[i]);
  };
  if (n <= most) {
    for (std::size_t i = 0; i < n; ++i)
      keep(i);
    return out;
  }
  const std::size_t buckets = (most - 2) / 2;
  keep(0);
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = 1 + (n - 2) * b / buckets, end = 1 + (n - 2) * (b + 1) / buckets;
    const Bucket bucket(y, begin, end);
    std::array kept = {bucket.low, bucket.high, bucket.gap};
    std::ranges::sort(kept);
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i] != kNone && (i == 0 || kept[i] != kept[i - 1])) keep(kept[i]);
    if (bucket.finite == 0) continue;
    out.means.x.push_back(x[(begin + end - 1) / 2]);
    out.means.y.push_back(bucket.sum / static_cast<double>(bucket.finite));
  }
  keep(n - 1);
  return out;
}

StepTimeHistogram step_time_histogram(std::span<const std::int64_t> step,
                                      std::span<const double> ms, std::size_t bins,
                                      std::size_t max_named) {
  MUO_CHECK(step.size() == ms.size() && bins > 0, "step times: ", step.size(), " steps, ",
            ms.size(), " times, ", bins, " bins");
  StepTimeHistogram out;
  std::vector<double> times;
  std::ranges::copy_if(ms, std::back_inserter(times),
                       [](double time) { return std::isfinite(time) && time > 0; });
  if (times.empty()) return out;
  out.median = quantile(times, 0.5);
  out.p90 = quantile(times, 0.9);
  out.p99 = quantile(times, 0.99);
  const auto [low, high] = std::ranges::minmax(times);
  if (high == low) bins = 1;
  out.counts.resize(bins);
  const double factor = std::log(high / low) / static_cast<double>(bins);
  for (std::size_t i = 0; i <= bins; ++i)
    out.edges.push_back(low * std::exp(factor * static_cast<double>(i)));
  for (const double time : times) {
    const double at = factor > 0 ? std::log(time / low) / factor : 0;
    ++out.counts[std::min(bins - 1, static_cast<std::size_t>(at))];
  }
  for (std::size_t i = 0; i < step.size(); ++i)
    if (std::isfinite(ms[i]) && ms[i] > 2 * out.median) out.slow.emplace_back(step[i], ms[i]);
  out.outliers = static_cast<std::int64_t>(out.slow.size());
  if (out.slow.size() > max_named) {
    std::ranges::stable_sort(out.slow,
                             [](const auto& a, const auto& b) { return a.second > b.second; });
    out.slow.resize(max_named);
    std::ranges::sort(out.slow);
  }
  return out;
}

}  // namespace muo::kit
