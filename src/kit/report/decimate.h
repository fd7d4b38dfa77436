#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace muo::kit {

// Points of a curve, with ascending x. A non-finite y is a gap.
struct Points {
  std::vector<std::int64_t> x;
  std::vector<double> y;
};

// A decimated curve.
struct DrawnCurve {
  Points points;
  // Mean of each bucket, at its middle, for smoothing, in which the extremes among `points` would
  // have too much weight. Empty if no point was dropped.
  Points means;
};

// Keeps about `most` points: the first, the last, and from each of equal buckets between them the
// smallest and the largest y and the first gap, so that no spike is lost. x and y have the same
// length; `most` is at least 4.
DrawnCurve decimate(std::span<const std::int64_t> x, std::span<const double> y, std::size_t most);

// The distribution of step times.
struct StepTimeHistogram {
  std::vector<double> edges;  // ms, logarithmically spaced; one more than counts
  std::vector<std::int64_t> counts;
  double median = 0, p90 = 0, p99 = 0;                // ms
  std::int64_t outliers = 0;                          // above twice the median
  std::vector<std::pair<std::int64_t, double>> slow;  // step and ms of the slowest outliers
};

// Returns the histogram of the steps' times in ms, ignoring times that are not finite and positive.
// It has at most `bins` bins and lists at most `max_named` slow steps, in ascending order.
StepTimeHistogram step_time_histogram(std::span<const std::int64_t> step,
                                      std::span<const double> ms, std::size_t bins,
                                      std::size_t max_named);

}  // namespace muo::kit
