#pragma once

#include <string>
#include <vector>

namespace muo::cuda {

// A __global__ function of this library, as registered with CUDA by nvcc's generated constructors
// when the library is loaded.
struct ListedKernel {
  const void* function;  // argument of cudaLaunchKernelEx
  std::string name;      // mangled
};
[[nodiscard]] const std::vector<ListedKernel>& listed_kernels();

// Loads all listed kernels onto the current device. CUDA otherwise loads a kernel at its first use,
// and loading may wait for everything that runs on the GPU, including a collective that waits for
// the loading rank: a deadlock. So every rank calls this before any rank's collective runs. Throws
// Error that names the kernel.
void load_listed_kernels();

}  // namespace muo::cuda
