#pragma once

#include <optional>

#include "runtime/plugin.h"

namespace muo::cuda {

// Reads a GPU's energy counter by NVML, the driver's management library (libnvidia-ml.so.1), which
// is loaded at the first call. Empty if there is no such library, or if it does not know the GPU
// (a MIG slice) or its energy (before Volta). For any thread.
std::optional<PowerReading> read_power(int gpu);

}  // namespace muo::cuda
