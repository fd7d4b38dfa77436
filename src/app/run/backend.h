#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "app/options/options.h"
#include "runtime/device_group.h"

namespace muo::app {

// Where the ranks are that the options ask for. Fills in what is automatic and adds a line to
// `notes` for each such decision. Throws InputError, with the reason and what to give instead, if
// it cannot be had.
GroupOptions choose_devices(DeviceOptions& options, std::vector<std::string>& notes);

// Empty if this machine has no GPU, or its GPUs can be used; else one line: which GPUs are not
// used, why not, and the command that mends it. Loads the CUDA backend. MUO_NO_CUDA is the reason
// where it was not built, for scripts/train.sh, which knows why.
std::string unused_gpus();
// A run that takes the host says so before anything else: prints unused_gpus() to `out` if
// --backend was `asked` to be automatic.
void warn_of_unused_gpus(std::optional<Backend> asked, const GroupOptions& group, std::FILE* out);

// Whether the system has this shared library.
bool library_loads(const char* library);

// Host devices where nothing else is asked: the usable cores, at most 4.
int default_devices();

// Bytes of each GPU that are not for planned tensors. Estimates; an H100 had 2.0 GiB of both.
// Of this process, after its CUDA context: kernels of cuBLASLt and cuDNN, which are loaded when
// they are first called, and of our own; workspaces of streams (128, 32 and 32 MiB a rank);
// buffers of NCCL's two communicators; graphs; stacks of threads.
inline constexpr std::int64_t kLibraryMemory = std::int64_t{3} << 29;
// The context itself (about half a GiB), and what the driver and a display may take.
inline constexpr std::int64_t kContextMemory = std::int64_t{1} << 30;

// Tokens that a device computes at once, at most, where nothing else is asked. A CPU's products are
// efficient with few; a GPU's want many, and each micro-step of training adds all gradients up once
// more.
std::int64_t most_pass_tokens(const GroupOptions& group);
// GptConfig::head_chunk_bytes of such a device.
std::int64_t head_chunk_bytes(const GroupOptions& group);

// Bytes for planned tensors on `group`'s fullest device: of a GPU what is free now less
// kLibraryMemory, shared by its virtual ranks; of the host what is for tensors (process_memory()),
// shared by all ranks.
std::int64_t available_memory_per_rank(const GroupOptions& group);
// Bytes that automatic sizes may plan for: of a GPU all that it has less kLibraryMemory and
// kContextMemory, whatever is free, so that the same command does the same on every day, which
// other sizes would not, as they round differently. Of the host, available_memory_per_rank().
std::int64_t memory_to_plan_per_rank(const GroupOptions& group);

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

}  // namespace muo::app
