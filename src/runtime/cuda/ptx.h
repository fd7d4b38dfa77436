#pragma once

// Instructions that CUDA C++ does not expose: asynchronous copies into shared memory, loads of
// matrix fragments and tensor-core products (sm_80 and later), the hardware's 2^x and 1 / x, and
// accesses to the words that ranks share. No other kernel header but warpgroup.h contains assembly.
// The SIMT tier has an equivalent of each.

#include "runtime/cuda/launch.h"

#ifdef MUO_SIMT
#  include "emulator/ptx.h"
#else

#  include <cstdint>

namespace muo::cuda {

// Address in shared memory, to which an offset in bytes may be added.
using SharedAddress = std::uint32_t;

__device__ __forceinline__ SharedAddress shared_address(const void* p) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes, both addresses aligned to 16, through L2 only; if `read` is false, writes 16
// zero bytes instead and does not read.
__device__ __forceinline__ void copy_async_16(SharedAddress to, const void* from, bool read) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(read ? 16 : 0)
               : "memory");
}

// The same for 4 bytes.
__device__ __forceinline__ void copy_async_4(SharedAddress to, const void* from, bool read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(read ? 4 : 0)
               : "memory");
}

// Commits this thread's copies since the last call as one group.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the latest kGroups groups of this thread have arrived. Other threads see them
// after a barrier.
template <int kGroups>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Loads four 8x8 matrices of 16-bit elements. Lane l passes the address of a row of 16 bytes: row l
// % 8 of matrix l / 8. It receives in r[i] the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of
// matrix i.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// The same for the transposed matrices: r[i] has rows 2 (l % 4) and 2 (l % 4) + 1 at column l / 4.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// d(16, 8) += a(16, 16) b(16, 8) in bf16, summed in fp32. With g = lane / 4 and p = 2 (lane % 4),
// each word of a lane contains two neighbours, the first in the lower half:
//   a[0] (g, p)   a[1] (g + 8, p)   a[2] (g, p + 8)   a[3] (g + 8, p + 8)   along a row
//   b[0] (p, g)   b[1] (p + 8, g)                                           along a column
//   d[0], d[1] (g, p), (g, p + 1)   d[2], d[3] (g + 8, p), (g + 8, p + 1)
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Emits no instruction, but forces values derived from x to be recomputed in each iteration. For
// loops without spare registers, in which addresses must not be kept from one iteration to the
// next.
__device__ __forceinline__ void compute_here(int& x) { asm volatile("" : "+r"(x)); }

// 2^x within 2 ulp; results below 2^-126 are zero.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within 1 ulp; results below 2^-126 are zero.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Accesses to words that ranks share, 32 or 64 bits, at system scope: visible to peer GPUs and the
// host. What a thread wrote or observed before its store is visible, after the load, to any thread
// that loads the stored value.
__device__ __forceinline__ std::uint32_t load_acquire_system(const std::uint32_t* p) {
  std::uint32_t x;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ std::uint64_t load_acquire_system(const std::uint64_t* p) {
  std::uint64_t x;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void store_release_system(std::uint32_t* p, std::uint32_t x) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ void store_release_system(std::uint64_t* p, std::uint64_t x) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

// A clock common to all GPUs of a machine, with a resolution of about a microsecond.
__device__ __forceinline__ std::uint64_t global_timer_ns() {
  std::uint64_t x;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x)::"memory");
  return x;
}

}  // namespace muo::cuda

#endif
