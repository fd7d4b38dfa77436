#pragma once

#include <cstdint>
#include <map>
#include <string>
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
struct GroupComparison {
  std::string unit;  // of scores
  std::vector<RunGroup> groups;
  std::vector<PairedTest> tests;  // of groups[i + 1] less groups[0]
  double alpha = 0;               // of each test
};
// kGiven: the baseline was chosen before the runs, so each other group is one test. kBest: it is
// the best group, so each pair of groups is one test. The tests share 1 - confidence (Bonferroni).
enum class Baseline : std::uint8_t { kGiven, kBest };
GroupComparison compare_groups(std::string unit, std::vector<RunGroup> groups, double confidence,
                               Baseline baseline);

std::string comparison_text(const GroupComparison& comparison);
std::string comparison_json(const GroupComparison& comparison);

}  // namespace muo::kit
