#pragma once

#include <span>
#include <string>
#include <vector>

#include "kit/report/text_report.h"
#include "kit/sweep/comparison.h"

namespace muo::kit {

// Groups runs by their options without the seed and bookkeeping, in the order of the runs. Adds a
// note for each run that is left out: one that ended early, has no evaluation at its last step, or
// repeats a seed of its group.
std::vector<RunGroup> group_runs(std::span<const RunSummary> runs, std::vector<std::string>& notes);
// One group of all runs; the same notes.
RunGroup one_group(std::span<const RunSummary> runs, std::vector<std::string>& notes);

}  // namespace muo::kit
