#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/device_group.h"
#include "trainer/options/options.h"

namespace muo::trainer {

// Chooses the devices for the ranks that the options request. Sets automatic options and adds a
// line to `notes` for each. Throws InputError, with the reason and the remedy, if the request
// cannot be met.
GroupOptions choose_devices(DeviceOptions& options, std::vector<std::string>& notes);

// Empty if this machine has no GPU or its GPUs are usable; otherwise one line with the unused GPUs,
// the reason and the command that fixes it. Loads the CUDA backend. If the backend was not built,
// the reason is MUO_NO_CUDA, which scripts/train.sh sets.
std::string unused_gpus();
// Prints unused_gpus() to `out` before a run that falls back to the host. Prints nothing if
// --backend was given (`asked`).
void warn_of_unused_gpus(std::optional<Backend> asked, const GroupOptions& group, std::FILE* out);

// True if this shared library loads.
bool library_loads(const char* library);

// Default number of host devices: the usable cores, at most 4.
int default_devices();

// Bytes of each GPU that are not available for planned tensors. Both are estimates; an H100 used
// 2.0 GiB for the two together.
//
// kLibraryMemory: kernels of cuBLASLt and cuDNN, which are loaded when first called, and our own
// kernels; workspaces of streams (128, 32 and 32 MiB per rank); buffers of NCCL's two
// communicators; graphs; stacks of threads.
inline constexpr std::int64_t kLibraryMemory = std::int64_t{3} << 29;
// kContextMemory: the CUDA context (about half a GiB), and what the driver and a display may use.
inline constexpr std::int64_t kContextMemory = std::int64_t{1} << 30;

// Default maximum number of tokens that a device computes at once. A CPU's matrix products are
// efficient with few tokens. A GPU's need many, and each micro-step of training costs another pass
// over all gradients.
std::int64_t max_pass_tokens(const GroupOptions& group);
// Default GptConfig::head_chunk_bytes of the group's devices.
std::int64_t head_chunk_bytes(const GroupOptions& group);

// Bytes available now for planned tensors per rank, on the device of `group` that has the least.
// For a GPU: its free memory less kLibraryMemory, divided among its virtual ranks. For the host:
// the memory for tensors (process_memory()), divided among all ranks.
std::int64_t available_memory_per_rank(const GroupOptions& group);
// Bytes per rank that automatic sizes may plan for. For a GPU: its total memory less kLibraryMemory
// and kContextMemory, whatever is free, so that a command always chooses the same sizes (other
// sizes would round differently). For the host: available_memory_per_rank().
std::int64_t memory_to_plan_per_rank(const GroupOptions& group);

struct Gpu {
  std::string device;  // "/dev/nvidia0"; empty: not accessible by this process
  std::string model;   // the driver's name for the GPU; empty: unknown
};

// NVIDIA GPUs of this machine, whether or not CUDA can use them, in the order of their numbers:
// those in /dev, named nvidia<number>, and in /proc/driver/nvidia/gpus. MUO_GPU_ROOT, if set,
// replaces the root of both paths (for tests).
std::vector<Gpu> gpus_here();

// "2 x NVIDIA H100 80GB HBM3 (/dev/nvidia0, /dev/nvidia1)", with equal models combined.
std::string gpu_names(const std::vector<Gpu>& gpus);

}  // namespace muo::trainer
