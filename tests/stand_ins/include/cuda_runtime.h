#pragma once

// The additions of NVIDIA's header of this name for kernels: launches with typed arguments, and
// queries by address. The emulator executes them.

#include <exception>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"
#include "emulator/launch.h"
#include "stand_ins/launches.h"

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  const muo::simt::Call<Parameters...> call(kernel, std::forward<Arguments>(arguments)...);
  muo::simt::Launch launch;
  try {
    launch = call.checked(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                          muo::stand_in::shared_opt_in(function),
                          muo::stand_in::launches_are_resident());
  } catch (const std::exception& error) {
    return muo::stand_in::refuse_launch(error.what());
  }
  muo::stand_in::Addresses addresses;
  std::apply([&](const auto&... value) { (addresses.add(value), ...); }, call.values());
  return muo::stand_in::launch(config->stream, function, addresses,
                               [call, launch] { call.run(launch); });
}

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
