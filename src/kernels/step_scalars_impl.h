#pragma once

#include "kernels/step_scalars.h"

namespace muo::host {
void advance_step(const AdvanceStepArgs& args);
void finish_step(const FinishStepArgs& args);
}  // namespace muo::host
