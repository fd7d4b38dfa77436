#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace muo::simt {

struct alignas(1024) SharedBytes {
  std::byte bytes[std::size_t{227} << 10];  // the most that a block of sm_90 may have
};

// Dynamic shared memory of the kernels of one translation unit (MUO_SHARED_MEMORY).
struct DynamicShared {
  DynamicShared(std::byte* (*address_of)(), std::size_t capacity);
};

// The shared memory of the blocks that the calling OS thread runs in one launch. It is the thread's
// copy of the thread-local variables of the library or program that holds the kernel: whatever is
// thread-local there and does not belong to the emulator is taken for __shared__.
class SharedMemory {
 public:
  SharedMemory(const void* kernel, std::size_t dynamic_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // At the start of a block: all bits one, which is a NaN in every floating-point type, so that
  // what a kernel reads before it writes shows in its results.
  void forget();

 private:
  std::vector<std::span<std::byte>> parts_;
};

// The emulator's own thread-local variables, which forget() leaves alone.
std::span<std::byte> scheduler_state();

}  // namespace muo::simt
