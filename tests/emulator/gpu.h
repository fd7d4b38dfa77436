#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muo::simt {

inline constexpr unsigned kCompiledArchitectures = 4;  // 80, 90a, 100a, 120

// The GPU of SIMT_ARCHITECTURE, whose limits launches must keep.
struct Gpu {
  const char* name;          // a value of SIMT_ARCHITECTURE
  std::size_t shared_bytes;  // per block, static and dynamic, for a kernel that opted in
  // Index into KernelResources::on of the code that this GPU runs; kCompiledArchitectures: the
  // maximum over all.
  unsigned compiled;
  int capability;  // reported compute capability: 90 for 9.0
};

// Throws Error if SIMT_ARCHITECTURE is invalid; unset it is "all", with the lowest limits of all.
const Gpu& gpu();

// Resources of a kernel as nvcc compiled it.
struct KernelResources {
  unsigned max_threads;  // per block, from __launch_bounds__; 0: unspecified
  // Includes the padding between parameters; absent if it was not compiled.
  std::optional<std::size_t> parameter_bytes;
  struct {
    unsigned registers;        // per thread
    std::size_t shared_bytes;  // static
  } on[kCompiledArchitectures];
};

// The resources of a kernel by its demangled name; a kernel that is not found cannot be launched.
// Each program that links the emulator defines this for its kernels: the tier in
// kernel_resources.cpp, the self-test in selftest/resources.cpp.
std::optional<KernelResources> find_resources(const std::string& kernel);

struct Launch;

// Throws Error, with the kernel's name, if the GPU would refuse the launch.
void check_resources(const Launch& launch);

// The kernel's resources on gpu(). Throws Error if the kernel is not found.
struct KernelUse {
  unsigned registers, max_threads;
  std::size_t shared_bytes;
};
KernelUse use_of(const void* kernel);
// The dynamic bytes for which a launch with `dynamic_bytes` opts in (runtime/cuda/shared_memory.h).
std::size_t shared_opt_in(const void* kernel, std::size_t dynamic_bytes);

}  // namespace muo::simt
