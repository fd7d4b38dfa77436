#pragma once

#include <optional>
#include <string_view>

namespace muo {

// Dense bf16 FLOP/s of a whole GPU with fp32 sums, as its maker states them, by the name that CUDA
// and nvidia-smi show ("NVIDIA H100 80GB HBM3"). Empty for a GPU that is not in the table, and for
// relatives and parts of those that are (Ti, D, laptop, MIG).
std::optional<double> gpu_peak_flops(std::string_view device_name);

}  // namespace muo
