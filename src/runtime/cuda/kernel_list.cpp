#include "runtime/cuda/kernel_list.h"

#include <cuda_runtime_api.h>

#include "runtime/cuda/compute_capability.h"
#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {
namespace {

// Function-local, as static constructors of other files add to it before this file's would run.
std::vector<ListedKernel>& kernels() {
  static std::vector<ListedKernel> list;
  return list;
}

}  // namespace

const std::vector<ListedKernel>& listed_kernels() { return kernels(); }

void load_listed_kernels() {
  int device = 0;
  MUO_CUDA_CHECK(cudaGetDevice(&device));
  const bool is_hopper = compute_capability(device) / 10 == 9;
  for (const ListedKernel& kernel : kernels()) {
    // CUTLASS kernels (kernels/cuda/sm90) are compiled for one architecture.
    if (!is_hopper && kernel.name.find("7cutlass") != std::string::npos) continue;
    cudaFuncAttributes attributes{};
    MUO_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel.function), "loading kernel ",
                   kernel.name);
  }
}

}  // namespace muo::cuda

// The linker redirects this library's calls of __cudaRegisterFunction here (--wrap,
// src/cuda.cmake): no other place sees every kernel. Declared as in crt/host_runtime.h of the
// toolkit.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
extern "C" {

void __real___cudaRegisterFunction(void** module, const char* host_function, char* device_function,
                                   const char* device_name, int thread_limit, uint3* thread,
                                   uint3* block, dim3* block_size, dim3* grid_size, int* warp_size);

void __wrap___cudaRegisterFunction(void** module, const char* host_function, char* device_function,
                                   const char* device_name, int thread_limit, uint3* thread,
                                   uint3* block, dim3* block_size, dim3* grid_size, int* warp_size);
void __wrap___cudaRegisterFunction(void** module, const char* host_function, char* device_function,
                                   const char* device_name, int thread_limit, uint3* thread,
                                   uint3* block, dim3* block_size, dim3* grid_size,
                                   int* warp_size) {
  muo::cuda::kernels().push_back({host_function, device_name});
  __real___cudaRegisterFunction(module, host_function, device_function, device_name, thread_limit,
                                thread, block, block_size, grid_size, warp_size);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
