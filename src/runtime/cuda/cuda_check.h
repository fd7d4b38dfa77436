#pragma once

#include <cuda_runtime_api.h>

#include "base/check.h"

namespace muo::cuda {

// Throws Error with CUDA's name and text of the failure. CUDA keeps some errors until they are
// read; reading them here prevents that they are reported by an unrelated call.
#define MUO_CUDA_CHECK(call, ...)                                                      \
  do {                                                                                 \
    if (const cudaError_t status = (call); status != cudaSuccess) [[unlikely]] {       \
      static_cast<void>(cudaGetLastError());                                           \
      MUO_FAIL(#call ": ", cudaGetErrorName(status), " (", cudaGetErrorString(status), \
               ")" __VA_OPT__(, " ", ) __VA_ARGS__);                                   \
    }                                                                                  \
  } while (false)

}  // namespace muo::cuda
