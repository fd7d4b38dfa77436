#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/update_squares.h"

namespace muo::cuda {

inline constexpr int kCommitThreads = static_cast<int>(kCommitPart) / kWidth<BF16>;

// A thread's sums of squares over its elements of a part.
struct ThreadSquares {
  double sums[kUpdateSquares] = {};

  __device__ __forceinline__ void add(float before, float after, float u = 0.0F) {
    const double change{after - before};
    sums[0] += change * change;
    sums[1] += static_cast<double>(after) * static_cast<double>(after);
    sums[2] += static_cast<double>(u) * static_cast<double>(u);
  }
};

// out[kUpdateSquares] <- the sums over the threads of a block, in a fixed order. All threads of the
// block must call it.
__device__ __forceinline__ void write_squares(double* out, const ThreadSquares& mine) {
  constexpr int kWarps = kCommitThreads / 32;
  __shared__ double of_warps[kUpdateSquares][kWarps];
#pragma unroll
  for (int s = 0; s < kUpdateSquares; ++s) {
    const double sum = warp_sum(mine.sums[s]);
    if (threadIdx.x % 32 == 0) of_warps[s][threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kUpdateSquares) return;
  double total = 0.0;
  for (int w = 0; w < kWarps; ++w)
    total += of_warps[threadIdx.x][w];
  out[threadIdx.x] = total;
}

// The element-wise loop of commits: block (p, q) processes part p of piece q, which has `piece`
// elements. `Body` has
//   load<N>(i) -> the inputs of elements [i, i + N);
//   finish<N>(i, inputs, squares): computes and stores them; calls `squares.add` for each weight.
// With N = 8, every thread processes one pack, whose loads are in flight together. With N = 1 it
// processes eight elements one after the other, and the kernel bounds its registers because ptxas
// would spill otherwise.
template <int N, class Body>
__global__ void __launch_bounds__(kCommitThreads, N == 1 ? 4 : 0)
    commit_kernel(Body body, std::int64_t piece, double* squares) {
  const std::int64_t base = std::int64_t{blockIdx.y} * piece;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kCommitPart;
  const std::int64_t end = begin + kCommitPart < piece ? begin + kCommitPart : piece;
  ThreadSquares sums;
  std::int64_t i = begin + std::int64_t{threadIdx.x} * N;
#pragma unroll 1
  for (; i + N <= end; i += kCommitThreads * N)
    body.template finish<N>(base + i, body.template load<N>(base + i), sums);
  if constexpr (N > 1) {
    for (; i < end; ++i)  // the remainder of the last part, processed by one thread
      body.template finish<1>(base + i, body.template load<1>(base + i), sums);
  }
  if (squares != nullptr)
    write_squares(squares + (std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kUpdateSquares,
                  sums);
}

// `squares` is (pieces, parts, 3), or absent. `addresses` are those of the body's tensors of `n`
// elements; null for absent ones.
template <class Body>
void launch_commit(NativeStream stream, const Body& body, std::int64_t n, const Tensor& squares,
                   std::initializer_list<const void*> addresses) {
  if (n == 0) return;
  const std::int64_t pieces = squares ? squares.shape[0] : 1;
  const std::int64_t piece = n / pieces;
  with_width<BF16>(vectors_fit<BF16>(pieces > 1 ? piece : 0, addresses), [&]<int N>() {
    launch(commit_kernel<N, Body>,
           dim3(static_cast<unsigned>(commit_parts(piece)), static_cast<unsigned>(pieces)),
           kCommitThreads, 0, stream, body, piece, data_or_null<double>(squares));
  });
}

}  // namespace muo::cuda
