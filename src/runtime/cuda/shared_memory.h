#pragma once

#include <cstddef>

namespace muo::cuda {

// Shared memory per block, static and dynamic, up to which a kernel needs no opt-in; the same on
// every GPU.
inline constexpr std::size_t kSharedWithoutOptIn = std::size_t{48} << 10;

// Dynamic bytes for which a kernel with `static_bytes` must opt in
// (cudaFuncAttributeMaxDynamicSharedMemorySize) before a launch with `dynamic_bytes`; 0 if it need
// not. It is always the maximum that the device allows, given `limit` bytes per block: the
// attribute belongs to the kernel, and another thread's launch on the same GPU must not lower it.
constexpr std::size_t shared_opt_in(std::size_t dynamic_bytes, std::size_t static_bytes,
                                    std::size_t limit) {
  return dynamic_bytes + static_bytes > kSharedWithoutOptIn ? limit - static_bytes : 0;
}

// Maximum dynamic shared memory of a block of the kernel on the current device: the device's limit
// minus the kernel's static bytes.
std::size_t max_shared_bytes_of(const void* kernel);

// Call it before a launch of the kernel with this many dynamic bytes on the current device: opts in
// if necessary, once per kernel and device. Throws Error with the kernel's name if a block cannot
// have that much. Attributes are cached, so that a launch queries CUDA for the current device only;
// a stream may be capturing.
void allow_shared_bytes(const void* kernel, std::size_t dynamic_bytes);

}  // namespace muo::cuda
