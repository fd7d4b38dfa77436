#pragma once

// Keywords and vector types of CUDA's headers, for a compiler without CUDA support. In the global
// namespace and under CUDA's names, as there.

#include <cstdint>

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
// One copy per OS thread, which runs one block at a time. In block scope thread_local implies
// static; constinit, as g++ 12 otherwise guards arrays of class types at run time, and
// ThreadSanitizer reports those guards as races.
#define __shared__ constinit thread_local
// NOLINTEND(bugprone-reserved-identifier)

#define MUO_SIMT_VECTORS(Element, Name, alignment2, alignment4)                           \
  struct Name##1 {                                                                        \
    Element x;                                                                            \
  };                                                                                      \
  struct alignas(alignment2) Name##2 {                                                    \
    Element x, y;                                                                         \
  };                                                                                      \
  struct Name##3 {                                                                        \
    Element x, y, z;                                                                      \
  };                                                                                      \
  struct alignas(alignment4) Name##4 {                                                    \
    Element x, y, z, w;                                                                   \
  };                                                                                      \
  constexpr Name##1 make_##Name##1(Element x) { return {x}; }                             \
  constexpr Name##2 make_##Name##2(Element x, Element y) { return {x, y}; }               \
  constexpr Name##3 make_##Name##3(Element x, Element y, Element z) { return {x, y, z}; } \
  constexpr Name##4 make_##Name##4(Element x, Element y, Element z, Element w) {          \
    return {x, y, z, w};                                                                  \
  }

MUO_SIMT_VECTORS(float, float, 8, 16)
MUO_SIMT_VECTORS(double, double, 16, 16)
MUO_SIMT_VECTORS(int, int, 8, 16)
MUO_SIMT_VECTORS(unsigned, uint, 8, 16)
MUO_SIMT_VECTORS(short, short, 4, 8)
MUO_SIMT_VECTORS(unsigned short, ushort, 4, 8)
MUO_SIMT_VECTORS(signed char, char, 2, 4)
MUO_SIMT_VECTORS(unsigned char, uchar, 2, 4)
MUO_SIMT_VECTORS(long long, longlong, 16, 16)
MUO_SIMT_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef MUO_SIMT_VECTORS

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  // NOLINTNEXTLINE(google-explicit-constructor): launch(kernel, 8, 256, ...) as in CUDA
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Indices of the CUDA thread that the calling OS thread currently runs.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local dim3 blockDim{};
inline constinit thread_local dim3 gridDim{};
inline constexpr int warpSize = 32;
