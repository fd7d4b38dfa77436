#pragma once

#include "kernels/reduce.h"

namespace muo::host {
void sum(const SumArgs& args);
void sum_squares(const SumSquaresArgs& args);
void loss_totals(const LossTotalsArgs& args);
}  // namespace muo::host
