#pragma once

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

// Throws Error.
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  MUO_CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
  return capture != cudaStreamCaptureStatusNone;
}

// While this object exists, its thread may make calls that a capture in progress would forbid:
// allocate, load kernels, wait for streams that are not captured. Work on captured streams is still
// recorded.
class RelaxedCapture {
 public:
  RelaxedCapture() { MUO_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace muo::cuda
