#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "kernels/dispatch.h"
#include "runtime/cuda/vector.h"

// Kernels in which a warp has a row, and a lane every 32nd access of it.
namespace muo::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr std::int64_t kRowsOfBlock = kRowThreads / kWarp;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x % 32); }
// The warp's row, which may be behind the last.
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

// body.operator()<T, N>() with the type in which tensors are stored, and the elements of one access
// to rows of `length` of them at these addresses (null: not given).
template <class Body>
void dispatch_packs(DType dtype, std::int64_t length, std::initializer_list<const void*> addresses,
                    const Body& body) {
  dispatch(dtype, [&]<class T>() {
    with_width<T>(vectors_fit<T>(length, addresses),
                  [&]<int N>() { body.template operator()<T, N>(); });
  });
}

}  // namespace muo::cuda
