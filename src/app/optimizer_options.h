#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "app/option_table.h"

namespace muo {

inline constexpr double kMostSteps = 1LL << 40;

// Groups of options that tell what is trained: what changes in them at --resume is listed.
inline constexpr std::string_view kBatchGroup = "Batch and length";
inline constexpr std::string_view kOptimizerGroup = "Optimizer";
inline constexpr std::string_view kGuardGroup = "Numerics guard";
inline constexpr std::array kTrainingGroups = {kBatchGroup, kOptimizerGroup, kGuardGroup};

// Rows of `train` and `plan` about the update, and about which updates are committed.
std::vector<OptionRow> optimizer_rows(TrainOptions& o);
std::vector<OptionRow> guard_rows(TrainOptions& o);

}  // namespace muo
