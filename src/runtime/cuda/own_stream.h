#pragma once

#include <memory>

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
// A stream of the current device for a moment's work, which nothing else waits for and which does
// not wait for the default stream. Whoever enqueues on it synchronises it.
using OwnStream = std::unique_ptr<CUstream_st, DestroyStream>;

// Throws Error.
inline OwnStream make_own_stream() {
  cudaStream_t stream = nullptr;
  MUO_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnStream(stream);
}

}  // namespace muo::cuda
