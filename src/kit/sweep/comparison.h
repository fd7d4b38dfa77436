#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kit/sweep/paired_test.h"

namespace muo::kit {

// Runs that differ only in their seed.
struct RunGroup {
  std::string name;
  std::map<std::string, double> scores;  // held-out values at the ends of the runs, by seed

  [[nodiscard]] double mean() const;
};

// Groups compared with the first one: each seed gives a pair of runs, which share the order of the
// data and, if the models are equal, the initial weights.
struct Comparison {
  std::string unit;  // of scores
  std::vector<RunGroup> groups;
  std::vector<PairedTest> tests;  // of groups[i + 1] less groups[0]
  double alpha = 0;               // of each test
};
// Whether the group to compare with was fixed before the runs, or is the best of them. A family of
// tests, one for each other group or one for each pair of groups, shares 1 - confidence equally.
enum class Baseline : std::uint8_t { kGiven, kBest };
Comparison compare_groups(std::string unit, std::vector<RunGroup> groups, double confidence,
                          Baseline baseline);

// The sign of a difference in words: a lower loss is "better".
std::string_view judgement_text(const PairedTest& test);
std::string comparison_text(const Comparison& comparison);
std::string comparison_json(const Comparison& comparison);

}  // namespace muo::kit
