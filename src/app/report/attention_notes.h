#pragma once

#include <string>
#include <vector>

#include "app/train/run_config.h"

namespace muo {

// How a device computes attention of the run's training steps, a line for each window: forward and
// gradients. None on the host, which has no choice. The first call may take seconds, as it makes
// plans. Throws InputError if --attention cannot be had.
std::vector<std::string> attention_notes(const RunConfig& config);

}  // namespace muo
