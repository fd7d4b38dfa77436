#include "emulator/gpu.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "base/check.h"
#include "emulator/kernel_name.h"
#include "emulator/scheduler.h"
#include "emulator/settings.h"
#include "runtime/cuda/shared_memory.h"

namespace muo::simt {
namespace {

// Bytes of shared memory are from the CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability". 8.6 and 8.9 run code that was compiled for 8.0.
constexpr Gpu kGpus[] = {{"all", std::size_t{99} << 10, kCompiledArchitectures, 90},
                         {"80", std::size_t{163} << 10, 0, 80},
                         {"86", std::size_t{99} << 10, 0, 86},
                         {"89", std::size_t{99} << 10, 0, 89},
                         {"90a", std::size_t{227} << 10, 1, 90},
                         {"100a", std::size_t{227} << 10, 2, 100},
                         {"120", std::size_t{99} << 10, 3, 120}};

constexpr unsigned kRegisters = 65536;             // per block
constexpr std::size_t kMaxParameterBytes = 32764;  // since CUDA 12.1, on sm_70 and later

constexpr unsigned round_up(unsigned x, unsigned unit) { return (x + unit - 1) / unit * unit; }

// A warp's registers are allocated in units of 256, and warps in units of four, one for each part
// of a multiprocessor (cuda_occupancy.h, cudaOccMaxBlocksPerSMRegsLimit).
constexpr unsigned registers_of(unsigned threads, unsigned registers) {
  return round_up((threads + 31) / 32, 4) * round_up(32 * registers, 256);
}

const KernelResources& resources_of(const void* kernel) {
  static std::mutex mutex;
  static std::map<const void*, KernelResources> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(kernel);
  if (found != known.end()) return found->second;
  const std::string name = kernel_name(kernel);
  const std::optional<KernelResources> resources = find_resources(name);
  if (!resources)
    MUO_FAIL("kernel ", name,
             " is not in tests/stand_ins/kernel_resources.inc: "
             "run scripts/check_cuda_architectures.py --write-table");
  return known.emplace(kernel, *resources).first->second;
}

}  // namespace

const Gpu& gpu() {
  static const Gpu& chosen = []() -> const Gpu& {
    for (const Gpu& one : kGpus)
      if (settings().architecture == one.name) return one;
    MUO_FAIL("SIMT_ARCHITECTURE is '", settings().architecture,
             "', expected all, 80, 86, 89, 90a, 100a or 120");
  }();
  return chosen;
}

void check_resources(const Launch& launch) {
  const KernelResources& kernel = resources_of(launch.kernel);
  const auto [registers, max_threads, in_kernel] = use_of(launch.kernel);
  const std::size_t limit = gpu().shared_bytes;
  const auto require = [&](bool holds, const auto&... what) {
    if (!holds) MUO_FAIL(what..., ", kernel ", kernel_name(launch.kernel), ", sm_", gpu().name);
  };
  const std::size_t allowed =
      launch.shared_opt_in > 0 ? launch.shared_opt_in : cuda::kSharedWithoutOptIn - in_kernel;
  require(std::max(launch.shared_bytes, allowed) + in_kernel <= limit, "a block has ", limit,
          " bytes of shared memory, asked for ", launch.shared_bytes, " dynamic ones beside ",
          in_kernel, " static ones");
  require(launch.shared_bytes <= allowed, launch.shared_bytes,
          " bytes of dynamic shared memory without opt-in beside ", in_kernel,
          " static ones: together at most ", cuda::kSharedWithoutOptIn);
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  require(max_threads == 0 || threads <= max_threads, threads,
          " threads in a block, launch bounds ", max_threads);
  require(registers_of(threads, registers) <= kRegisters, threads, " threads of ", registers,
          " registers need ", registers_of(threads, registers), ", a block has ", kRegisters);
  require(launch.parameter_bytes <= kMaxParameterBytes, launch.parameter_bytes,
          " bytes of parameters, at most ", kMaxParameterBytes);
  require(launch.parameter_bytes == 0 ||
              launch.parameter_bytes == kernel.parameter_bytes.value_or(launch.parameter_bytes),
          launch.parameter_bytes, " bytes of parameters, nvcc says ",
          kernel.parameter_bytes.value_or(0),
          ": run scripts/check_cuda_architectures.py --write-table");
}

KernelUse use_of(const void* kernel) {
  const KernelResources& of = resources_of(kernel);
  KernelUse use{0, of.max_threads, 0};
  for (unsigned compiled = 0; compiled < kCompiledArchitectures; ++compiled)
    if (gpu().compiled == compiled || gpu().compiled == kCompiledArchitectures) {
      use.registers = std::max(use.registers, of.on[compiled].registers);
      use.shared_bytes = std::max(use.shared_bytes, of.on[compiled].shared_bytes);
    }
  return use;
}

std::size_t shared_opt_in(const void* kernel, std::size_t dynamic_bytes) {
  return cuda::shared_opt_in(dynamic_bytes, use_of(kernel).shared_bytes, gpu().shared_bytes);
}

}  // namespace muo::simt
