#pragma once

#include "kernels/phase_clock.h"

namespace muo::host {
void lap(const LapArgs& args);
}  // namespace muo::host
