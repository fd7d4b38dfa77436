#pragma once

#include <memory>

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

struct FreeDevice {
  void operator()(void* p) const { static_cast<void>(cudaFree(p)); }
};
// cudaMalloc's, for a moment's work. Making and freeing it may wait for all work of the GPU, which
// therefore waits for nobody.
using DeviceMemory = std::unique_ptr<void, FreeDevice>;

}  // namespace muo::cuda
