#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muo::simt {

inline constexpr unsigned kCompiledArchitectures = 4;  // 80, 90a, 100a, 120

// What launches are held to, as the GPU of SIMT_ARCHITECTURE would.
struct Gpu {
  const char* name;          // a value of SIMT_ARCHITECTURE
  std::size_t shared_bytes;  // of a block, static and dynamic, for a kernel that opted in
  // Which of KernelResources::on it runs; kCompiledArchitectures: that which takes most.
  unsigned compiled;
  int capability;  // what it says it is: 90 for 9.0
};

// Throws Error for a value that makes no sense. Without one "all": the least that any of them has.
const Gpu& gpu();

// Of a kernel as nvcc compiled it.
struct KernelResources {
  unsigned most_threads;  // of a block: __launch_bounds__; 0: not said
  // With the padding between parameters; nothing if no compiler was asked.
  std::optional<std::size_t> parameter_bytes;
  struct {
    unsigned registers;        // of a thread
    std::size_t shared_bytes;  // static ones
  } on[kCompiledArchitectures];
};

// By the kernel's demangled name; a kernel that is not found cannot be launched. Whoever links the
// emulator knows its kernels: kernel_resources.cpp of the tier, selftest/resources.cpp of its
// self-test.
std::optional<KernelResources> find_resources(const std::string& kernel);

struct Launch;

// Throws Error, with the kernel's name, if the GPU would refuse the launch.
void check_resources(const Launch& launch);

// What is known of the kernel, on the GPU that is asked for. Throws Error for one that is not
// found.
struct KernelUse {
  unsigned registers, most_threads;
  std::size_t shared_bytes;
};
KernelUse use_of(const void* kernel);
// Dynamic bytes for which a launch with `dynamic_bytes` makes the kernel opt in
// (runtime/cuda/shared_memory.h).
std::size_t shared_opt_in(const void* kernel, std::size_t dynamic_bytes);

}  // namespace muo::simt
