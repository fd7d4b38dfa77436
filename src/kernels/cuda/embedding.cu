#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/index_check.h"
#include "kernels/embedding.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kRows = kThreads / kWarp;  // of a block

// One warp per row, a lane every 32nd access; `Access` is 16 bytes or one element. Reads and writes
// sizeof(T) bytes per element: bound by bandwidth, or by L2 where the rows of a small vocabulary
// stay there.
template <class Access>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(Access* __restrict__ y, const Access* __restrict__ table,
                     const std::int32_t* tokens, std::int64_t n, std::int64_t v,
                     std::int64_t width) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= n) return;
  const std::int32_t token = tokens[row];
  check_index(0 <= token && token < v, "embedding: token", token, row, 0, v);
  table += token * width;
  y += row * width;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x % 32; i < width; i += kWarp)
    y[i] = table[i];
}

template <class Access>
void copy_rows(NativeStream stream, const EmbeddingArgs& args) {
  const std::int64_t n = args.tokens.shape[0];
  const std::int64_t bytes = args.table.shape[1] * size_of(args.table.dtype);
  if (n == 0 || bytes == 0) return;
  launch(embedding_kernel<Access>, blocks_for(n, kRows), kThreads, 0, stream,
         reinterpret_cast<Access*>(args.y.data), reinterpret_cast<const Access*>(args.table.data),
         args.tokens.as<std::int32_t>(), n, args.table.shape[0],
         bytes / static_cast<std::int64_t>(sizeof(Access)));
}

void embedding(NativeStream stream, const EmbeddingArgs& args) {
  dispatch(args.table.dtype, [&]<class T>() {
    if (vectors_fit<T>(args.table.shape[1], {args.y.data, args.table.data}))
      copy_rows<uint4>(stream, args);
    else
      copy_rows<T>(stream, args);
  });
}

const KernelRegistration<EmbeddingArgs> registration(&embedding);

}  // namespace
}  // namespace muo::cuda
