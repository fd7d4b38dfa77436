#pragma once

#include <cuda_runtime_api.h>

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

// Compute capability of GPU `device`: 90 for 9.0.
inline int compute_capability(int device) {
  int major = 0;
  int minor = 0;
  MUO_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MUO_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

}  // namespace muo::cuda
