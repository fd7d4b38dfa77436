#pragma once

// Marks functions in headers that kernels of every backend call. `constexpr` functions do not need
// it, because nvcc compiles them for the device anyway.
#ifdef __CUDACC__
#  define MUO_HOST_DEVICE __host__ __device__
#else
#  define MUO_HOST_DEVICE
#endif
