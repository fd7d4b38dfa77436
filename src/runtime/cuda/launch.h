#pragma once

// Hides which compiler compiles a kernel: nvcc, or g++ for the SIMT tier, which runs the same
// source with a fiber for each CUDA thread (tests/emulator). Kernels are launched by launch() only.
// A translation unit whose kernels use dynamic shared memory has the line MUO_SHARED_MEMORY before
// them, and they call shared_memory<T>(), which is aligned to 128 bytes.

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/shared_memory.h"
#include "runtime/stream.h"

#ifdef MUO_SIMT
#  include "emulator/launch.h"
#else

#  define MUO_SHARED_MEMORY                                        \
    template <class T>                                             \
    static __device__ __forceinline__ T* shared_memory() {         \
      extern __shared__ __align__(128) unsigned char muo_shared[]; \
      return reinterpret_cast<T*>(muo_shared);                     \
    }

namespace muo::cuda {

// For loops that wait for a value written by another rank.
__device__ __forceinline__ void spin_pause() { __nanosleep(100); }

}  // namespace muo::cuda

#endif

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace muo::cuda {

// Throws Error with the kernel's name if CUDA refuses the launch. Opts in to more than 48 KiB of
// shared memory if needed.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            NativeStream stream, Arguments&&... arguments) {
  const void* function = reinterpret_cast<const void*>(kernel);
  const auto name = [function] {
    const char* text = nullptr;
    return cudaFuncGetName(&text, function) == cudaSuccess ? text : "?";
  };
  if (shared_bytes > 0) allow_shared_bytes(function, shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  MUO_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                 "of kernel ", name());
}

// For grids whose blocks wait for blocks of other ranks' grids, so that all must be resident at
// once. There is no cooperative launch: such grids are small, and their makers ensure that they
// fit.
template <class... Parameters, class... Arguments>
void launch_resident(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                     NativeStream stream, Arguments&&... arguments) {
#ifdef MUO_SIMT
  const stand_in::ResidentLaunches all_blocks_at_once;
#endif
  launch(kernel, grid, block, shared_bytes, stream, std::forward<Arguments>(arguments)...);
}

inline constexpr std::int64_t kWarp = 32;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Number of blocks for `work` units at `per_block` each, at least one, as CUDA refuses empty grids,
// and at most `most`; capped kernels loop with the grid's stride.
inline unsigned blocks_for(std::int64_t work, std::int64_t per_block,
                           std::int64_t most = std::int64_t{1} << 30) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(work, per_block), 1, most));
}

// Maximum dynamic shared memory of a block of the kernel on the current device, in bytes.
template <class... Parameters>
std::int64_t max_shared_bytes(void (*kernel)(Parameters...)) {
  return static_cast<std::int64_t>(max_shared_bytes_of(reinterpret_cast<const void*>(kernel)));
}

// Enough blocks to keep all multiprocessors of the largest GPUs busy several times over: the cap of
// grid-stride kernels. A constant, so that the order of sums does not depend on the GPU.
inline constexpr std::int64_t kManyBlocks = 2048;

}  // namespace muo::cuda
