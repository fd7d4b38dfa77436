#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace muo::simt {

struct alignas(1024) SharedBytes {
  std::byte bytes[std::size_t{227} << 10];  // the maximum of a block on sm_90
};

// Dynamic shared memory of the kernels of one translation unit (MUO_SHARED_MEMORY).
struct DynamicShared {
  DynamicShared(std::byte* (*address_of)(), std::size_t capacity);
};

// The shared memory of the blocks that the calling OS thread runs in one launch. It is the thread's
// copy of the thread-local variables of the library or program that contains the kernel: all of
// them that do not belong to the emulator are treated as __shared__.
class SharedMemory {
 public:
  SharedMemory(const void* kernel, std::size_t dynamic_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Called at the start of a block: sets all bits, which is a NaN in every floating-point type, so
  // that reads of uninitialised memory show in the results.
  void fill_with_nans();
  [[nodiscard]] std::span<const std::span<std::byte>> parts() const { return parts_; }

 private:
  std::vector<std::span<std::byte>> parts_;
};

// In assembly, as sanitizers intercept memset() and check its accesses.
void fill_with_ones(std::span<std::byte> bytes);

// The emulator's own thread-local variables, which fill_with_nans() must not overwrite.
std::span<std::byte> scheduler_state();

}  // namespace muo::simt
