#include "kernels/cuda/block.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/lerp.h"
#include "kernels/muon.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr double kUpdateFloor = 1e-6;     // Muon+'s clamp of |u|
constexpr float kVarianceFloor = 1e-10F;  // NorMuon's clamps
constexpr double kRescaleFloor = 1e-10;

constexpr int kRowThreads = 128;
constexpr std::int64_t kRows = kRowThreads / kWarp;  // of a block
constexpr int kWholeMatrix = 512;                    // threads where one block serves one matrix
constexpr int kStripe = 8;                           // warps that share a stripe of columns

// The scratch of a stream: the scale of each matrix, then sums of squares, `parts` for each index
// of the long side: sums[(matrix * parts + part) * length + i].
struct Scratch {
  double* scales;
  double* sums;
  std::int64_t parts;
};

// R >= C: sums along rows. One warp per row, sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    row_sums_kernel(double* sums, const T* x, std::int64_t all_rows, std::int64_t columns) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= all_rows) return;
  double sum = 0.0;
  for (std::int64_t j = std::int64_t{threadIdx.x % 32} * N; j < columns; j += kWarp * N)
    for (const float v : load<N>(x + row * columns + j).v)
      sum = fma(static_cast<double>(v), static_cast<double>(v), sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[row] = sum;
}

// R < C: sums along columns. A block takes a stripe of 32 N columns and the rows of one part; its
// warps take every kStripe-th row, and their sums meet in shared memory, in order. sizeof(T) bytes
// per element, bound by bandwidth. Grid: stripes, parts, matrices.
template <class T, int N>
__global__ void __launch_bounds__(kStripe * 32)
    column_sums_kernel(double* sums, const T* x, std::int64_t rows, std::int64_t columns,
                       std::int64_t rows_of_part) {
  __shared__ double of_warps[kStripe][32 * N];
  const std::int64_t lane = threadIdx.x % 32;
  const std::int64_t warp = threadIdx.x / 32;
  const std::int64_t column = (std::int64_t{blockIdx.x} * 32 + lane) * N;
  const std::int64_t begin = blockIdx.y * rows_of_part;
  const std::int64_t end = rows < begin + rows_of_part ? rows : begin + rows_of_part;
  x += blockIdx.z * rows * columns;
  double part[N] = {};
  if (column < columns)
    for (std::int64_t i = begin + warp; i < end; i += kStripe) {
      const Pack<N> values = load<N>(x + i * columns + column);
#pragma unroll
      for (int j = 0; j < N; ++j)
        part[j] = fma(static_cast<double>(values.v[j]), static_cast<double>(values.v[j]), part[j]);
    }
#pragma unroll
  for (int j = 0; j < N; ++j)
    of_warps[warp][lane * N + j] = part[j];
  __syncthreads();
  sums += (blockIdx.z * std::int64_t{gridDim.y} + blockIdx.y) * columns;
  for (int i = static_cast<int>(threadIdx.x); i < 32 * N; i += kStripe * 32) {
    double sum = 0.0;
    for (int w = 0; w < kStripe; ++w)
      sum += of_warps[w][i];
    const std::int64_t at = std::int64_t{blockIdx.x} * 32 * N + i;
    if (at < columns) sums[at] = sum;
  }
}

// Muon+ and NorMuon's variance from the sums: new_variance, and the scale of the matrix that the
// next launch divides by the root of the variance. One block per matrix: latency.
__global__ void __launch_bounds__(kWholeMatrix)
    muon_variance_kernel(Scratch scratch, float* new_variance, const float* variance,
                         const StepScalars* scalars, std::int64_t length, double n,
                         bool unit_update) {
  const std::int64_t matrix = blockIdx.x;
  const double* sums = scratch.sums + matrix * scratch.parts * length;
  const auto sum_at = [&](std::int64_t i) {
    double sum = 0.0;
    for (std::int64_t part = 0; part < scratch.parts; ++part)
      sum += sums[part * length + i];
    return sum;
  };
  variance += matrix * length;
  new_variance += matrix * length;
  double total = 0.0;
  for (std::int64_t i = threadIdx.x; i < length; i += kWholeMatrix)
    total += sum_at(i);
  total = block_sum(total);
  const double plus = unit_update ? sqrt(n) / fmax(sqrt(total), kUpdateFloor) : 1.0;
  const float weight = 1.0F - scalars->muon_beta2;
  double rescaled = 0.0;
  for (std::int64_t i = threadIdx.x; i < length; i += kWholeMatrix) {
    const double sum = sum_at(i) * plus * plus;
    const float v = lerp(variance[i], static_cast<float>(sum / n), weight);
    rescaled += sum / static_cast<double>(fmaxf(v, kVarianceFloor));
    new_variance[i] = v;
  }
  rescaled = block_sum(rescaled);
  const double norm = plus * sqrt(total);
  if (threadIdx.x == 0) scratch.scales[matrix] = plus * norm / fmax(sqrt(rescaled), kRescaleFloor);
}

// u = x scale / sqrt(variance of its row, or column). One warp per row: sizeof(T) + 4 bytes per
// element, bound by bandwidth. u may be x.
template <class T, int N, bool kPerRow>
__global__ void __launch_bounds__(kRowThreads)
    muon_apply_scale_kernel(float* u, const T* x, const double* scales, const float* variance,
                            std::int64_t all_rows, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= all_rows) return;
  const auto scale = static_cast<float>(scales[row / rows]);
  const auto factor_of = [&](float v) { return scale / sqrtf(fmaxf(v, kVarianceFloor)); };
  const float factor = kPerRow ? factor_of(variance[row]) : 0.0F;
  variance += row / rows * columns;
  for (std::int64_t j = std::int64_t{threadIdx.x % 32} * N; j < columns; j += kWarp * N) {
    Pack<N> values = load<N>(x + row * columns + j);
#pragma unroll
    for (int i = 0; i < N; ++i)
      values.v[i] *= kPerRow ? factor : factor_of(variance[j + i]);
    store_wide(u + row * columns + j, values);
  }
}

// Enough parts that the blocks fill a GPU when there are few matrices, and that fit the scratch.
std::int64_t parts_of(std::int64_t matrices, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kRowsOfPart = 128;
  const std::int64_t most = (kMostPartials - matrices) / (matrices * std::max(rows, columns));
  MUO_CHECK(most >= 1, "muon_scale of ", matrices, " matrices of ", rows, " x ", columns,
            ": more rows and columns than a stream has scratch for");
  return rows >= columns ? 1 : std::min(ceil_div(rows, kRowsOfPart), most);
}

void muon_scale(NativeStream stream, const MuonScaleArgs& args) {
  const std::int64_t matrices = args.u.shape[0];
  const std::int64_t rows = args.u.shape[1];
  const std::int64_t columns = args.u.shape[2];
  if (args.u.numel() == 0) return;
  const bool per_row = rows >= columns;
  const std::int64_t all_rows = matrices * rows;
  const std::int64_t parts = parts_of(matrices, rows, columns);
  double* partials = context_of(stream).partials;
  const Scratch scratch{.scales = partials, .sums = partials + matrices, .parts = parts};
  auto* u = args.u.as<float>();
  auto* new_variance = args.new_variance.as<float>();
  dispatch(args.x.dtype, [&]<class T>() {
    const T* x = args.x.as<T>();
    with_width<T>(vectors_fit<T>(columns, {u, x}), [&]<int N>() {
      if (per_row) {
        launch(row_sums_kernel<T, N>, blocks_for(all_rows, kRows), kRowThreads, 0, stream,
               scratch.sums, x, all_rows, columns);
      } else {
        const dim3 grid(blocks_for(columns, 32 * N), static_cast<unsigned>(parts),
                        static_cast<unsigned>(matrices));
        launch(column_sums_kernel<T, N>, grid, kStripe * 32, 0, stream, scratch.sums, x, rows,
               columns, ceil_div(rows, parts));
      }
      launch(muon_variance_kernel, static_cast<unsigned>(matrices), kWholeMatrix, 0, stream,
             scratch, new_variance, args.variance.as<float>(),
             args.scalars.as_struct<StepScalars>(), std::max(rows, columns),
             static_cast<double>(std::min(rows, columns)), args.unit_update);
      launch(per_row ? muon_apply_scale_kernel<T, N, true> : muon_apply_scale_kernel<T, N, false>,
             blocks_for(all_rows, kRows), kRowThreads, 0, stream, u, x, scratch.scales,
             new_variance, all_rows, rows, columns);
    });
  });
}

const KernelRegistration<MuonScaleArgs> registration(&muon_scale);

}  // namespace
}  // namespace muo::cuda
