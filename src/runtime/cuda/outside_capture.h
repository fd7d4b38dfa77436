#pragma once

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {

// While it lives, calls on this thread that a capture in progress would refuse (allocations,
// waiting for other streams) are allowed; nothing of them becomes part of the capture.
class OutsideCapture {
 public:
  OutsideCapture() { MUO_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~OutsideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace muo::cuda
