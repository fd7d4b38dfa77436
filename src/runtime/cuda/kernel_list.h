#pragma once

#include <string>
#include <vector>

namespace muo::cuda {

// A __global__ function of this library, as nvcc's generated constructors announce it to CUDA when
// the library is loaded.
struct ListedKernel {
  const void* function;  // what cudaLaunchKernelEx takes
  std::string name;      // mangled
};
[[nodiscard]] const std::vector<ListedKernel>& listed_kernels();

// Loads all of them onto the current device. CUDA loads a kernel when it is first used, and loading
// may wait for everything that runs on the GPU: for a collective, too, that waits for the rank that
// is loading. So every rank calls this before any rank's collective runs. Throws Error, naming the
// kernel.
void load_listed_kernels();

}  // namespace muo::cuda
