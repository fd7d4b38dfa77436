#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace muo::app {

// Points of a curve, by rising x. A y that is not finite is a gap.
struct Points {
  std::vector<std::int64_t> x;
  std::vector<double> y;
};

// A curve as it is drawn. `means` is for smoothing: an extreme weighs no more than its neighbours
// there. Empty where no point was left out.
struct DrawnCurve {
  Points points;
  Points means;  // of each bucket, at its middle
};

// At most about `most` of the points: the first, the last, and of each of equal buckets between
// them the smallest and the largest y and the first gap, so that no spike is lost. y is as long as
// x, most at least 4.
DrawnCurve decimate(std::span<const std::int64_t> x, std::span<const double> y, std::size_t most);

// How often steps took how long.
struct StepTimeHistogram {
  std::vector<double> edges;  // ms, growing by a factor; one more than counts
  std::vector<std::int64_t> counts;
  double median = 0, p90 = 0, p99 = 0;                // ms
  std::int64_t outliers = 0;                          // above twice the median
  std::vector<std::pair<std::int64_t, double>> slow;  // step and ms of the slowest of them
};

// Of steps with their times in ms; times that are not finite or not above 0 do not count. At most
// `bins` bins, and `most_named` slow steps, in the order of steps.
StepTimeHistogram step_time_histogram(std::span<const std::int64_t> step,
                                      std::span<const double> ms, std::size_t bins,
                                      std::size_t most_named);

}  // namespace muo::app
