#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/transpose.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kThreadRows = 8;

// A block moves a tile of 32 x 32 through shared memory, so that both x and y are accessed along
// rows. sizeof(From) + sizeof(To) bytes per element, bound by bandwidth. Grid: tiles of a row of x,
// tiles of a column, matrices.
template <class To, class From>
__global__ void __launch_bounds__(kTile* kThreadRows)
    transpose_kernel(To* y, const From* x, std::int64_t rows, std::int64_t columns) {
  __shared__ float tile[kTile][kTile + 1];
  const std::int64_t matrix = blockIdx.z * rows * columns;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTile;
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kThreadRows) {
    const std::int64_t row = first_row + i;
    const std::int64_t column = first_column + threadIdx.x;
    if (row < rows && column < columns)
      tile[i][threadIdx.x] = to_float(x[matrix + row * columns + column]);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kThreadRows) {
    const std::int64_t row = first_column + i;
    const std::int64_t column = first_row + threadIdx.x;
    if (row < columns && column < rows)
      y[matrix + row * rows + column] = from_float<To>(tile[threadIdx.x][i]);
  }
}

void transpose(NativeStream stream, const TransposeArgs& args) {
  const std::int64_t rows = args.x.shape[1];
  const std::int64_t columns = args.x.shape[2];
  if (args.x.numel() == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(columns, kTile)),
                  static_cast<unsigned>(ceil_div(rows, kTile)),
                  static_cast<unsigned>(args.x.shape[0]));
  dispatch(args.y.dtype, [&]<class To>() {
    dispatch(args.x.dtype, [&]<class From>() {
      launch(transpose_kernel<To, From>, grid, dim3(kTile, kThreadRows), 0, stream, args.y.as<To>(),
             args.x.as<From>(), rows, columns);
    });
  });
}

const KernelRegistration registration(&transpose);

}  // namespace
}  // namespace muo::cuda
