#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/enum_names.h"

namespace muo::kit {

// The probability that a variable of Student's t distribution with `freedom` degrees of freedom is
// further from 0 than |t|. By the finite series for whole numbers: Abramowitz and Stegun 1964,
// 26.7.3 and 26.7.4.
double two_sided_p(double t, int freedom);
// The t of which this probability is `p`, 0 < p < 1.
double critical_t(double p, int freedom);

enum class Judgement : std::uint8_t { kLower, kUndecided, kHigher };
// A lower loss is better.
constexpr auto names_of(Judgement) { return name_list("better", "not told apart", "worse"); }

// A paired two-sided t-test of differences of held-out losses: runs of one point less runs of
// another, by seed.
struct PairedTest {
  int pairs = 0;
  double mean = 0, deviation = 0;  // of the differences; deviation: the sample's standard deviation
  double low = 0, high = 0;        // interval of the true mean at confidence 1 - alpha
  double p = 1;
  Judgement judgement = Judgement::kUndecided;  // kLower, kHigher: p < alpha
};
// Undecided, with an infinite interval, for fewer than two pairs.
PairedTest paired_test(std::span<const double> differences, double alpha);

// The number of pairs with which a mean and a deviation like those of the test would be significant
// at `alpha`. Empty: over kMaxPairs.
inline constexpr int kMaxPairs = 1000;
std::optional<int> pairs_needed(const PairedTest& test, double alpha);

}  // namespace muo::kit
