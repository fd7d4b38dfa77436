#pragma once

// Before functions of headers that kernels of every backend call. `constexpr` ones need it not:
// nvcc compiles those for the device as they are.
#ifdef __CUDACC__
#  define MUO_HOST_DEVICE __host__ __device__
#else
#  define MUO_HOST_DEVICE
#endif
