#pragma once

#include <vector>

#include "app/option_table.h"

namespace muo {

inline constexpr double kMostSteps = 1LL << 40;

// Rows of `train` and `plan` about the update, and about which updates are committed.
std::vector<OptionRow> optimizer_rows(TrainOptions& o);
std::vector<OptionRow> guard_rows(TrainOptions& o);

}  // namespace muo
