#pragma once

#include <memory>

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
// A short-lived stream of the current device that does not synchronise with the default stream. The
// code that enqueues on it also synchronises it.
using OwnStream = std::unique_ptr<CUstream_st, DestroyStream>;

// Throws Error.
inline OwnStream make_own_stream() {
  cudaStream_t stream = nullptr;
  MUO_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnStream(stream);
}

}  // namespace muo::cuda
