#include "kernels/cuda/index_check.h"
#include "kernels/operation.h"
#include "kernels/take_row.h"
#include "runtime/cuda/launch.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 256;

// Grid-stride, 4 bytes at a time: a micro-step's tokens are a few hundred KiB.
__global__ void __launch_bounds__(kThreads)
    take_row_kernel(std::int32_t* out, const std::int32_t* rows, const std::int64_t* index,
                    std::int64_t count, std::int64_t length) {
  const std::int64_t row = *index;
  if (row < 0 || row >= count)
    stop_at_index("take_row: index", static_cast<std::int32_t>(row), 0, 0, count);
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < length; i += stride)
    out[i] = rows[row * length + i];
}

void take_row(NativeStream stream, const TakeRowArgs& args) {
  const std::int64_t length = args.out.numel();
  launch(
      take_row_kernel, blocks_for(length, kThreads, kManyBlocks), kThreads, 0, stream,
      args.out.as<std::int32_t>(), static_cast<const std::int32_t*>(args.rows.as<std::int32_t>()),
      static_cast<const std::int64_t*>(args.index.as<std::int64_t>()), args.rows.shape[0], length);
}

const KernelRegistration registration(&take_row);

}  // namespace
}  // namespace muo::cuda
