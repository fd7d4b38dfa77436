#include "runtime/cuda/shared_memory.h"

#include <map>
#include <mutex>
#include <utility>

#include "runtime/cuda/cuda_check.h"

namespace muo::cuda {
namespace {

// Shared memory of a kernel on a device.
struct SharedBytes {
  std::size_t in_kernel = 0;  // static bytes
  std::size_t limit = 0;      // per block, with opt-in
  bool opted_in = false;
};

struct Known {
  std::mutex mutex;  // threads of several devices launch at once
  std::map<std::pair<int, const void*>, SharedBytes> kernels;
};

const char* name_of(const void* kernel) {
  const char* text = nullptr;
  return cudaFuncGetName(&text, kernel) == cudaSuccess ? text : "?";
}

// Calls body(bytes) with the kernel's entry for the current device, under the lock.
template <class Body>
std::size_t with_bytes_of(const void* kernel, const Body& body) {
  static Known known;
  int device = 0;
  MUO_CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(known.mutex);
  SharedBytes& bytes = known.kernels[{device, kernel}];
  if (bytes.limit == 0) {
    cudaFuncAttributes attributes{};
    MUO_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel), "of kernel ", name_of(kernel));
    int limit = 0;
    MUO_CUDA_CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    bytes = {.in_kernel = attributes.sharedSizeBytes, .limit = static_cast<std::size_t>(limit)};
  }
  return body(bytes);
}

}  // namespace

std::size_t max_shared_bytes_of(const void* kernel) {
  return with_bytes_of(kernel, [](const SharedBytes& of) { return of.limit - of.in_kernel; });
}

void allow_shared_bytes(const void* kernel, std::size_t dynamic_bytes) {
  with_bytes_of(kernel, [&](SharedBytes& of) {
    MUO_CHECK(dynamic_bytes + of.in_kernel <= of.limit, "kernel ", name_of(kernel), " needs ",
              dynamic_bytes, " + ", of.in_kernel,
              " bytes of shared memory, but a block of this GPU has at most ", of.limit);
    const std::size_t opt_in = shared_opt_in(dynamic_bytes, of.in_kernel, of.limit);
    if (opt_in > 0 && !of.opted_in) {
      MUO_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(opt_in)),
                     "of kernel ", name_of(kernel), ", ", opt_in, " bytes");
      of.opted_in = true;
    }
    return opt_in;
  });
}

}  // namespace muo::cuda
