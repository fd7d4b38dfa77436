// Replaces the constructors that nvcc generates for the plug-in: registers every kernel with CUDA
// when the library is loaded, together with its resources. Part of the library of the kernels.

#include <cstdlib>
#include <string>

#include "base/check.h"
#include "cuda_runtime.h"
#include "emulator/gpu.h"
#include "emulator/kernel_name.h"
#include "runtime/cuda/probe.h"

namespace muo::stand_in {
namespace {

cudaFuncAttributes attributes_of(const void* kernel) {
  const simt::KernelUse use = simt::use_of(kernel);
  return {.sharedSizeBytes = use.shared_bytes,
          .maxThreadsPerBlock = static_cast<int>(use.max_threads == 0 ? 1024 : use.max_threads),
          .numRegs = static_cast<int>(use.registers)};
}

[[maybe_unused]] const bool kRegistered = [] {
  // A fiber is more expensive than a GPU's thread, and ThreadSanitizer supports at most 8,128.
  setenv("MUO_PEER_THREADS", "64", 0);  // NOLINT(concurrency-mt-unsafe): before there are threads
  set_compiled({.attributes_of = attributes_of,
                .shared_limit = simt::gpu().shared_bytes,
                .major = simt::gpu().capability / 10,
                .minor = simt::gpu().capability % 10});
  const auto* here_too = reinterpret_cast<const void*>(&cuda::has_kernels_for_current_device);
  for (const simt::NamedFunction& function : simt::functions_beside(here_too))
    if (simt::find_resources(function.name))
      __cudaRegisterFunction(nullptr, static_cast<const char*>(function.address), nullptr,
                             function.mangled.c_str(), -1, nullptr, nullptr, nullptr, nullptr,
                             nullptr);
  return true;
}();

}  // namespace
}  // namespace muo::stand_in
