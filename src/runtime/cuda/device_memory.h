#pragma once

#include <memory>

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

struct FreeDevice {
  void operator()(void* p) const { static_cast<void>(cudaFree(p)); }
};
// Short-lived memory of cudaMalloc. Allocating and freeing it may wait for all work of the GPU, so
// that work must not wait for another rank.
using DeviceMemory = std::unique_ptr<void, FreeDevice>;

}  // namespace muo::cuda
