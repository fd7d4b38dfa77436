#pragma once

#include "kernels/step_scalars.h"

namespace muo::trainer {

// How much of a run's time budget is spent.
struct BudgetClock {
  double budget = 0, spent = 0;  // seconds of training
  Pace pace = {};                // once the budget is spent, its position is 1
};

}  // namespace muo::trainer
