#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "kernels/dispatch.h"
#include "runtime/cuda/vector.h"

// Common parts of kernels with one warp per row, in which a lane takes every 32nd access.
namespace muo::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr std::int64_t kRowsOfBlock = kRowThreads / kWarp;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x % 32); }
// The warp's row, which may be beyond the last row.
__device__ __forceinline__ std::int64_t row_of_warp() {
  return std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / 32;
}

template <class... Parameters, class... Arguments>
void launch_rows(void (*kernel)(Parameters...), NativeStream stream, std::int64_t rows,
                 Arguments&&... arguments) {
  if (rows == 0) return;
  launch(kernel, blocks_for(rows, kRowsOfBlock), kRowThreads, 0, stream,
         std::forward<Arguments>(arguments)...);
}

// Calls body(k, i) for each of a lane's accesses to a row of c elements: access k reads N elements
// at i. With K > 0 there are at most K accesses, and the loop is unrolled, so that k is a
// compile-time constant.
template <int N, int K, class Body>
__device__ __forceinline__ void each_access(std::int64_t c, const Body& body) {
  const std::int64_t first = std::int64_t{lane_id()} * N;
  if constexpr (K > 0) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (first + k * kWarp * N < c) body(k, first + k * kWarp * N);
  } else {
    for (std::int64_t i = first; i < c; i += kWarp * N)
      body(0, i);
  }
}

// A lane's part of a row. With K > 0 it is held in registers in its storage format, and all
// loads are issued before the first value is used; otherwise each access reads memory, or L1
// the second time.
template <class T, int N, int K>
class HeldRow {
 public:
  __device__ __forceinline__ HeldRow(const T* row, std::int64_t c) : row_(row) {
    if constexpr (K > 0)
      each_access<N, K>(
          c, [&](int k, std::int64_t i) { held_[k] = *reinterpret_cast<const uint4*>(row + i); });
  }
  [[nodiscard]] __device__ __forceinline__ Pack<N> at(int k, std::int64_t i) const {
    if constexpr (K > 0)
      return load<N>(reinterpret_cast<const T*>(&held_[k]));
    else
      return load<N>(row_ + i);
  }

 private:
  const T* row_;
  uint4 held_[K > 0 ? K : 1];
};

// Calls body.operator()<T, N>() with the storage type of the tensors and the number of elements per
// access to rows of `length` elements at `addresses` (null: absent).
template <class Body>
void dispatch_packs(DType dtype, std::int64_t length, std::initializer_list<const void*> addresses,
                    const Body& body) {
  dispatch(dtype, [&]<class T>() {
    with_width<T>(vectors_fit<T>(length, addresses),
                  [&]<int N>() { body.template operator()<T, N>(); });
  });
}

// The same with <T, N, K>, where K is that of HeldRow.
template <class Body>
void dispatch_held_rows(DType dtype, std::int64_t length,
                        std::initializer_list<const void*> addresses, const Body& body) {
  dispatch_packs(dtype, length, addresses, [&]<class T, int N>() {
    if constexpr (N > 1) {
      if (length <= 4 * kWarp * N) return body.template operator()<T, N, 4>();
      if (length <= 8 * kWarp * N) return body.template operator()<T, N, 8>();
    }
    body.template operator()<T, N, 0>();
  });
}

}  // namespace muo::cuda
