#pragma once

#include "kernels/operation.h"

namespace muo::cuda {

// At the end of a family's .cu file, one for each operation: makes its CUDA kernel known when the
// plug-in is loaded.
template <class Args>
struct KernelRegistration {
  explicit KernelRegistration(void (*kernel)(NativeStream, const Args&)) {
    register_cuda_kernel<Args>(kernel);
  }
};

}  // namespace muo::cuda
