#include <cuda_runtime.h>

#include "runtime/cuda/probe.h"

namespace muo::cuda {
namespace {

__global__ void probe() {}

}  // namespace

bool has_kernels_for_current_device() {
  cudaFuncAttributes attributes{};
  const bool has = cudaFuncGetAttributes(&attributes, probe) == cudaSuccess;
  static_cast<void>(cudaGetLastError());
  return has;
}

}  // namespace muo::cuda
