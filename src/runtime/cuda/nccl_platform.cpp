#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/nccl_communicator.h"

namespace muo::nccl {

Platform cuda_platform() {
  return {.is_capturing =
              [](NativeStream stream) {
                cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
                MUO_CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
                return capture != cudaStreamCaptureStatusNone;
              },
          .gpu_of =
              [](const Device& /*device*/) {  // its thread asks
                int gpu = 0;
                MUO_CUDA_CHECK(cudaGetDevice(&gpu));
                return gpu;
              },
          .use_gpu = [](int gpu) { MUO_CUDA_CHECK(cudaSetDevice(gpu)); }};
}

}  // namespace muo::nccl
