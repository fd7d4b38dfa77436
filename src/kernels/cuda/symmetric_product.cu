#include <algorithm>

#include "kernels/cuda/gemm_problem.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/symmetric_product.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kThreadRows = 8;

// Mirrors the part below the diagonal, and adds `diagonal` to the diagonal. A block moves a tile of
// 32 x 32 through shared memory, so that both sides are accessed along rows; blocks of tiles above
// the diagonal return at once. sizeof(T) bytes per element of d, bound by bandwidth. Grid: tiles of
// a row, tiles of a column, matrices.
template <class T>
__global__ void __launch_bounds__(kTile* kThreadRows)
    mirror_kernel(T* d, float diagonal, std::int64_t n) {
  if (blockIdx.x > blockIdx.y) return;
  __shared__ float tile[kTile][kTile + 1];
  d += blockIdx.z * n * n;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTile;
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kThreadRows) {
    const std::int64_t row = first_row + i;
    const std::int64_t column = first_column + threadIdx.x;
    if (row >= n || column > row) continue;
    const float value = to_float(d[row * n + column]);
    if (row == column) d[row * n + column] = from_float<T>(value + diagonal);
    tile[i][threadIdx.x] = value;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kThreadRows) {
    const std::int64_t row = first_column + i;
    const std::int64_t column = first_row + threadIdx.x;
    if (column < n && row < column) d[row * n + column] = from_float<T>(tile[threadIdx.x][i]);
  }
}

// Rows per product on tensor cores: enough for their full rate; for n = 768, the resulting 3
// products save a third of the work.
constexpr std::int64_t kRows = 256;

void symmetric_product(NativeStream stream, const SymmetricProductArgs& args) {
  const std::int64_t n = args.d.shape[1];
  const std::int64_t bytes = size_of(args.d.dtype);
  const Tensor& b = args.b ? args.b : args.a;
  const bool adds = args.c && args.beta != 0.0F;
  if (args.d.numel() == 0) return;
  GemmProblem problem{.k = args.a.shape[args.transpose_a ? 1 : 2],
                      .batch = args.d.shape[0],
                      .in = args.d.dtype,
                      .out = args.d.dtype,
                      .transpose_a = args.transpose_a,
                      .transpose_b = !args.b && !args.transpose_a,
                      .whole = n,
                      .addend = !adds                        ? GemmProblem::Addend::kNone
                                : args.c.data == args.d.data ? GemmProblem::Addend::kInPlace
                                                             : GemmProblem::Addend::kSeparate,
                      .alignment = {}};
  // Computes d in blocks of rows, each up to and including its block on the diagonal.
  for (std::int64_t row = 0; row < n; row += kRows) {
    const auto at = [bytes](const Tensor& t, std::int64_t element) {
      return static_cast<std::byte*>(t.data) + element * bytes;
    };
    problem.m = std::min(kRows, n - row);
    problem.n = row + problem.m;
    const GemmOperands operands{.a = at(args.a, args.transpose_a ? row : row * problem.k),
                                .b = b.data,
                                .c = at(adds ? args.c : args.d, row * n),
                                .d = at(args.d, row * n),
                                .alpha = args.alpha,
                                .beta = adds ? args.beta : 0.0F};
    problem.alignment = {.a = alignment_of(operands.a),
                         .b = alignment_of(operands.b),
                         .c = alignment_of(operands.c),
                         .d = alignment_of(operands.d)};
    run_problem(stream, problem, operands);
  }
  const auto tiles = static_cast<unsigned>(ceil_div(n, kTile));
  dispatch(args.d.dtype, [&]<class T>() {
    launch(mirror_kernel<T>, dim3(tiles, tiles, static_cast<unsigned>(args.d.shape[0])),
           dim3(kTile, kThreadRows), 0, stream, args.d.as<T>(), args.diagonal, n);
  });
}

const KernelRegistration registration(&symmetric_product);

}  // namespace
}  // namespace muo::cuda
