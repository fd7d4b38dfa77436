#pragma once

// Features of compute capability 9.0 only: products of warpgroups, which read operands from shared
// memory directly, and bulk copies of tiles, which complete on barriers. See PTX ISA 8.0,
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "mbarrier", "cp.async.bulk.tensor". On
// other devices all of it traps. The SIMT tier has an equivalent of each.

#include "runtime/cuda/ptx.h"
#include "runtime/tensor.h"

#ifdef MUO_SIMT
#  include "emulator/warpgroup.h"
#else

#  include <cstdint>

#  include <cuda.h>
#  include <cudaTypedefs.h>

namespace muo::cuda {

#  ifdef __CUDA_ARCH_FEAT_SM90_ALL
#    define MUO_WARPGROUP(...) asm volatile(__VA_ARGS__)
#  else
#    define MUO_WARPGROUP(...) __trap()
#  endif

// ---- Barriers -----------------------------------------------------------------------------------

// Barriers are in shared memory, 8 bytes each. A phase ends when `arrivals` threads have arrived
// and all announced bytes have been copied; then the next phase begins. The first phase is 0.
__device__ __forceinline__ void init_barrier(SharedAddress barrier, int arrivals) {
  MUO_WARPGROUP("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible: called by the initialising thread, before the __syncthreads()
// that lets other threads use them.
__device__ __forceinline__ void show_barriers() {
  MUO_WARPGROUP("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive(SharedAddress barrier) {
  MUO_WARPGROUP("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Announces `bytes` of copies, and arrives.
__device__ __forceinline__ void arrive_expecting(SharedAddress barrier, int bytes) {
  MUO_WARPGROUP("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                : "memory");
}
// Waits until the phase of this parity has ended; it must be the current phase or the one before.
__device__ __forceinline__ void wait_for_phase(SharedAddress barrier, int parity) {
  MUO_WARPGROUP(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
      "@p bra done; bra again; done: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- Copies -------------------------------------------------------------------------------------

// Descriptor of a bf16 tensor (b, t, heads, h), h a multiple of 8, aligned to 16 bytes; a const
// __grid_constant__ parameter of kernels.
struct TileMap {
  CUtensorMap map;
};
inline TileMap tile_map(const Tensor& x) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    MUO_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                    cudaEnableDefault, &found));
    MUO_CHECK(found == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  const auto size = [&](std::size_t i) { return static_cast<cuuint64_t>(x.shape[i]); };
  const cuuint64_t sizes[] = {size(3), size(2), size(1), size(0)};
  const cuuint64_t bytes[] = {2 * size(3), 2 * size(3) * size(2), 2 * size(3) * size(2) * size(1)};
  const cuuint32_t box[] = {64, 1, 64, 1};
  const cuuint32_t every[] = {1, 1, 1, 1};
  TileMap out{};
  const CUresult result =
      encode(&out.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x.data, sizes, bytes, box, every,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  MUO_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", static_cast<int>(result));
  return out;
}

// Copies 64 rows from `t` and 64 columns from `column` of a head, 8192 bytes, in the layout of
// SharedMatrix; elements outside of the tensor become zeros. Copies are issued by one thread.
__device__ __forceinline__ void copy_tile(SharedAddress to, const TileMap& from, int row, int t,
                                          int head, int column, SharedAddress barrier) {
  MUO_WARPGROUP(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&from), "r"(barrier), "r"(column), "r"(head), "r"(t), "r"(row)
      : "memory");
}
// `bytes` and both addresses are multiples of 16.
__device__ __forceinline__ void copy_bytes(SharedAddress to, const void* from, int bytes,
                                           SharedAddress barrier) {
  MUO_WARPGROUP(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// ---- Products -----------------------------------------------------------------------------------

// A warpgroup is four warps, the first of which has an index that is a multiple of four; all of its
// threads call these functions together, and warp w has rows [16 w, 16 w + 16) of 64. Products are
// asynchronous: their sums may be accessed, and their operands overwritten, only after a wait for
// their group.

// A right or left operand in shared memory: rows of 128 bytes, in which chunk c of 16 bytes of row
// r is stored at c ^ r % 8, in groups of 8 rows that start at multiples of 1024. The hardware's
// descriptor in two words; only the first contains the address.
struct SharedMatrix {
  std::uint32_t low, high;

  // The operand `bytes` further, a multiple of 16.
  __device__ __forceinline__ SharedMatrix operator+(int bytes) const {
    return {low + static_cast<std::uint32_t>(bytes / 16), high};
  }
  __device__ __forceinline__ std::uint64_t descriptor() const {
    return std::uint64_t{high} << 32 | low;
  }
};
// 16 columns of the rows from `at`. Products sum along the rows.
__device__ __forceinline__ SharedMatrix along_rows(SharedAddress at) {
  return {at >> 4 | 1U << 16, 1024 >> 4 | 1U << 30};
}
// 16 rows from `at`, whose columns from 64 i are i * panel_bytes further. Products sum along the
// columns.
__device__ __forceinline__ SharedMatrix along_columns(SharedAddress at, int panel_bytes) {
  return {at >> 4 | static_cast<std::uint32_t>(panel_bytes >> 4) << 16, 1024 >> 4 | 1U << 30};
}

#  define MUO_FLOATS(x) "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
#  define MUO_NEW_FLOATS(x) "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])

// Emits no instruction; makes the compiler keep the sums in these registers at this point.
template <int N>
__device__ __forceinline__ void settle(float (&sums)[N][4]) {
#  pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : MUO_FLOATS(sums[n])::"memory");
}
// Required before the first products that add to these sums, as they may have been accessed.
template <int... N>
__device__ __forceinline__ void begin_products(float (&... sums)[N][4]) {
  (settle(sums), ...);
  MUO_WARPGROUP("wgmma.fence.sync.aligned;" ::: "memory");
}
// Makes the products since the last call one group.
__device__ __forceinline__ void commit_products() {
  MUO_WARPGROUP("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all but the latest kGroups groups are done; `sums` belong to those that are done.
template <int kGroups, int... N>
__device__ __forceinline__ void wait_for_products(float (&... sums)[N][4]) {
  MUO_WARPGROUP("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  (settle(sums), ...);
}

// The predicate selects d += a b^T or d = a b^T.
#  define MUO_MULTIPLY_ROWS(predicate, floats)                                                \
    MUO_WARPGROUP(                                                                            \
        "{ .reg .pred p; " predicate                                                          \
        " p, 0, 0; "                                                                          \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "                               \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "             \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "   \
        "%32, %33, p, 1, 1, 0, 0; }"                                                          \
        : floats(d[0]), floats(d[1]), floats(d[2]), floats(d[3]), floats(d[4]), floats(d[5]), \
          floats(d[6]), floats(d[7])                                                          \
        : "l"(a.descriptor()), "l"(b.descriptor()))

// d(64, 64) += a(64, 16) b(64, 16)^T, both along rows; d[n] of a warp is laid out as in
// multiply_add, for columns from 8 n.
__device__ __forceinline__ void multiply_add_rows(float (&d)[8][4], SharedMatrix a,
                                                  SharedMatrix b) {
  MUO_MULTIPLY_ROWS("setp.eq.u32", MUO_FLOATS);
}
// d = a b^T, otherwise as above.
__device__ __forceinline__ void multiply_rows(float (&d)[8][4], SharedMatrix a, SharedMatrix b) {
  MUO_MULTIPLY_ROWS("setp.ne.u32", MUO_NEW_FLOATS);
}

// d(64, 8 N) += a(64, 16) b(16, 8 N), b along columns; each warp's a is laid out as in
// multiply_add.
__device__ __forceinline__ void multiply_add_columns(float (&d)[8][4], const std::uint32_t (&a)[4],
                                                     SharedMatrix b) {
  MUO_WARPGROUP(
      "{ .reg .pred p; setp.eq.u32 p, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
      : MUO_FLOATS(d[0]), MUO_FLOATS(d[1]), MUO_FLOATS(d[2]), MUO_FLOATS(d[3]), MUO_FLOATS(d[4]),
        MUO_FLOATS(d[5]), MUO_FLOATS(d[6]), MUO_FLOATS(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()));
}
__device__ __forceinline__ void multiply_add_columns(float (&d)[16][4], const std::uint32_t (&a)[4],
                                                     SharedMatrix b) {
  MUO_WARPGROUP(
      "{ .reg .pred p; setp.eq.u32 p, 0, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
      : MUO_FLOATS(d[0]), MUO_FLOATS(d[1]), MUO_FLOATS(d[2]), MUO_FLOATS(d[3]), MUO_FLOATS(d[4]),
        MUO_FLOATS(d[5]), MUO_FLOATS(d[6]), MUO_FLOATS(d[7]), MUO_FLOATS(d[8]), MUO_FLOATS(d[9]),
        MUO_FLOATS(d[10]), MUO_FLOATS(d[11]), MUO_FLOATS(d[12]), MUO_FLOATS(d[13]),
        MUO_FLOATS(d[14]), MUO_FLOATS(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()));
}

#  undef MUO_MULTIPLY_ROWS
#  undef MUO_NEW_FLOATS
#  undef MUO_FLOATS
#  undef MUO_WARPGROUP

}  // namespace muo::cuda

#endif
