#pragma once

#include <cmath>

namespace muo {

// An exponential moving average over about ten values, corrected for bias.
class RecentMean {
 public:
  // Adds `value` `count` times.
  void add(double value, double count = 1) {
    const double keep = std::pow(0.9, count);
    weight_ = keep * weight_ + (1 - keep);
    mean_ += (1 - keep) / weight_ * (value - mean_);
  }
  [[nodiscard]] double mean() const { return mean_; }  // 0 before the first value

 private:
  double mean_ = 0, weight_ = 0;
};

}  // namespace muo
