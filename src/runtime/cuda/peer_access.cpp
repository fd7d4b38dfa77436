#include "runtime/cuda/peer_access.h"

#include <algorithm>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/peer_kernels.h"

namespace muo {

bool can_access(int own, int other) {
  int can = 0;
  MUO_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, own, other));
  return can != 0;
}

int current_gpu() {
  int gpu = 0;
  MUO_CUDA_CHECK(cudaGetDevice(&gpu));
  return gpu;
}

namespace {

void enable_access(int rank, int own, int other) {
  if (!can_access(own, other))
    throw InputError(concat("--comm peer: GPU ", own, " (rank ", rank,
                            ") cannot access the memory of GPU ", other, "; use --comm nccl"));
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled)
    static_cast<void>(cudaGetLastError());
  else
    MUO_CUDA_CHECK(enabled, "from GPU ", own, " to GPU ", other);
}

// A waiting CTA stays resident. All ranks' CTAs together may take half of the GPU at most, so that
// the work they wait for can run.
void check_residency(int own, std::ptrdiff_t ranks, const void* kernel) {
  int multiprocessors = 0;
  int each = 0;
  MUO_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, own));
  MUO_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, peer::kMaxThreads, 0));
  const int most = multiprocessors * each / 2;
  if (ranks * peer::kMaxCtas > most)
    throw InputError(concat("--comm peer: ", ranks, " ranks on GPU ", own, " need ",
                            ranks * peer::kMaxCtas,
                            " resident blocks, at most half of the GPU's are allowed: ", most,
                            "; use fewer --ranks-per-device"));
}

}  // namespace

void connect_peers(int rank, std::span<const int> gpus) {
  const int own = current_gpu();
  for (const int other : gpus)
    if (other != own) enable_access(rank, own, other);
  for (const void* kernel : peer::kernels())
    check_residency(own, std::ranges::count(gpus, own), kernel);
}

}  // namespace muo
