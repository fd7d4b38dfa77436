#pragma once

#include <string>
#include <vector>

namespace muo {

struct Gpu {
  std::string device;  // "/dev/nvidia0"; empty: the driver has it, and this process cannot open it
  std::string model;   // as the driver calls it; empty: the driver does not say
};

// NVIDIA's GPUs of this machine, whether CUDA can use them or not, by their numbers: what lies in
// /dev as nvidia<number>, and in /proc/driver/nvidia/gpus. Both are looked for below MUO_GPU_ROOT,
// if that is set (tests).
std::vector<Gpu> gpus_here();

// "2 x NVIDIA H100 80GB HBM3 (/dev/nvidia0, /dev/nvidia1)", kind by kind.
std::string gpu_names(const std::vector<Gpu>& gpus);

}  // namespace muo
