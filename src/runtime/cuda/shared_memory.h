#pragma once

#include <cstddef>

namespace muo::cuda {

// Bytes of dynamic shared memory that a block of the kernel may have on the current device: the
// device's limit less what the kernel has statically.
std::size_t most_shared_bytes_of(const void* kernel);

// Before a launch of the kernel with this many dynamic bytes on the current device: opts in if need
// be, once for each kernel and device. Throws Error, with the kernel's name, if a block cannot have
// that much. What is known of a kernel is kept, so that a launch asks CUDA for its device only; a
// stream may be capturing.
void allow_shared_bytes(const void* kernel, std::size_t dynamic_bytes);

}  // namespace muo::cuda
