#pragma once

#include <cstddef>

namespace muo::cuda {

// Shared memory that a block may have without its kernel's opting in for more, dynamic and static
// bytes together; the same on every GPU.
inline constexpr std::size_t kSharedWithoutOptIn = std::size_t{48} << 10;

// Dynamic bytes for which a kernel with `static_bytes` has to opt in
// (cudaFuncAttributeMaxDynamicSharedMemorySize) before a launch with `dynamic_bytes`; 0 if it need
// not. It is always as much as the device has, `limit` bytes of a block: the attribute belongs to
// the kernel, and another thread's launch on the same GPU must not lower it.
constexpr std::size_t shared_opt_in(std::size_t dynamic_bytes, std::size_t static_bytes,
                                    std::size_t limit) {
  return dynamic_bytes + static_bytes > kSharedWithoutOptIn ? limit - static_bytes : 0;
}

// Bytes of dynamic shared memory that a block of the kernel may have on the current device: the
// device's limit less what the kernel has statically.
std::size_t most_shared_bytes_of(const void* kernel);

// Before a launch of the kernel with this many dynamic bytes on the current device: opts in if need
// be, once for each kernel and device. Throws Error, with the kernel's name, if a block cannot have
// that much. What is known of a kernel is kept, so that a launch asks CUDA for its device only; a
// stream may be capturing.
void allow_shared_bytes(const void* kernel, std::size_t dynamic_bytes);

}  // namespace muo::cuda
