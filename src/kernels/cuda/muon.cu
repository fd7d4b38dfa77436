#include <algorithm>

#include "kernels/cuda/commit_loop.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/master.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/muon.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"
#include "runtime/cuda/stream_context.h"

namespace muo::cuda {
namespace {

constexpr int kWholeMatrix = 512;  // threads per block, with one block per matrix

__device__ __forceinline__ double add_square(float v, double sum) {
  return fma(static_cast<double>(v), static_cast<double>(v), sum);
}
// Adds the squares of `values` in fp64, which costs 2 operations for the 10 or more
// bytes of an element.
template <int N>
__device__ __forceinline__ double add_squares(const Pack<N>& values, double sum) {
#pragma unroll
  for (const float v : values.v)
    sum = add_square(v, sum);
  return sum;
}

// ---- muon_nesterov and muon_input ---------------------------------------------------------------

// m' = lerp(m, g, 1 - mu), x = lerp(g, m', look_ahead), as muon_nesterov (kernels/muon.h).
struct Nesterov {
  const StepScalars* scalars;
  __device__ __forceinline__ float operator()(float g, float m) const {
    return lerp(g, lerp(m, g, 1.0F - scalars->muon_momentum), scalars->muon_look_ahead);
  }
};

// Element-wise (elementwise.h): 4 bytes per element plus gradient and momentum, bound by bandwidth.
template <class G, class M>
struct NesterovInput {
  static constexpr int kPacks = 2;
  float* x;
  const G* g;
  const M* m;
  Nesterov nesterov;

  template <int N>
  struct Inputs {
    Pack<N> g, m;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {load_wide<N>(g + i), load_wide<N>(m + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Inputs<N> in) const {
#pragma unroll
    for (int j = 0; j < N; ++j)
      in.g.v[j] = nesterov(in.g.v[j], in.m.v[j]);
    store_wide(x + i, in.g);
  }
};

// First pass of muon_input: stores the Nesterov input (without momentum, the gradient) and the
// norms of its rows as stored. One warp per row: reads sizeof(G) + sizeof(M) bytes and writes
// sizeof(T) bytes per element, bound by bandwidth.
template <class T, class G, class M, int N>
__global__ void __launch_bounds__(kRowThreads)
    muon_input_kernel(T* x, float* norms, const G* g, const M* m, Nesterov nesterov,
                      std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  double squares = 0.0;
  for (std::int64_t j = std::int64_t{lane_id()} * N; j < columns; j += kWarp * N) {
    const std::int64_t i = row * columns + j;
    Pack<N> values = load_wide<N>(g + i);
    if (m != nullptr) {
      const Pack<N> momentum = load_wide<N>(m + i);
#pragma unroll
      for (int k = 0; k < N; ++k)
        values.v[k] = nesterov(values.v[k], momentum.v[k]);
    }
    values = rounded<T>(values);
    squares = add_squares(values, squares);
    store_wide(x + i, values);
  }
  squares = warp_sum(squares);
  if (lane_id() == 0) norms[row] = static_cast<float>(sqrt(squares));
}

// The factor of a row, before the division by the norm.
__device__ __forceinline__ double row_factor(const MuonNormalisation& how, double target,
                                             float norm) {
  return how.equilibrate ? target / fmax(static_cast<double>(norm), kMuonRowFloor) : 1.0;
}
__device__ __forceinline__ double divisor(const MuonNormalisation& how, double sum_of_squares) {
  return sqrt(sum_of_squares) * how.factor + how.eps;
}

// For matrix k, partials[2 k] <- the norm to which every row is scaled, partials[2 k + 1] <- the
// divisor of the result. One block per matrix reads R norms from L2: bound by latency.
__global__ void __launch_bounds__(kWholeMatrix)
    muon_target_kernel(double* partials, const float* norms, std::int64_t rows,
                       MuonNormalisation how) {
  norms += blockIdx.x * rows;
  const double total = block_sum_of<kWholeMatrix>(
      rows, [=](std::int64_t i, double sum) { return add_square(norms[i], sum); });
  const double target = sqrt(total / static_cast<double>(rows));
  const double scaled = block_sum_of<kWholeMatrix>(rows, [=](std::int64_t i, double sum) {
    const double after = double{norms[i]} * row_factor(how, target, norms[i]);
    return fma(after, after, sum);
  });
  if (threadIdx.x != 0) return;
  partials[2 * blockIdx.x] = target;
  partials[2 * blockIdx.x + 1] = divisor(how, scaled);
}

// For bf16 only: nanochat rounds a row's factor and product before it computes the norm, so the sum
// for the norm needs a separate pass. One warp per row: reads 2 bytes per element. row_squares
// follows the targets of all matrices.
template <int N>
__global__ void __launch_bounds__(kRowThreads)
    muon_rounded_squares_kernel(double* row_squares, const double* targets, const BF16* x,
                                const float* norms, std::int64_t all_rows, std::int64_t rows,
                                std::int64_t columns, MuonNormalisation how) {
  const std::int64_t row = row_of_warp();
  if (row >= all_rows) return;
  const double factor = row_factor(how, targets[2 * (row / rows)], norms[row]);
  const float scale = to_float(from_float<BF16>(static_cast<float>(factor)));
  double squares = 0.0;
  for (std::int64_t j = std::int64_t{lane_id()} * N; j < columns; j += kWarp * N)
    squares = add_squares(rounded<BF16>(scaled(scale, load<N>(x + row * columns + j))), squares);
  squares = warp_sum(squares);
  if (lane_id() == 0) row_squares[row] = squares;
}

__global__ void __launch_bounds__(kWholeMatrix)
    muon_divisor_kernel(double* targets, const double* row_squares, std::int64_t rows,
                        MuonNormalisation how) {
  row_squares += blockIdx.x * rows;
  const double total = block_sum_of<kWholeMatrix>(
      rows, [=](std::int64_t i, double sum) { return sum + row_squares[i]; });
  if (threadIdx.x == 0) targets[2 * blockIdx.x + 1] = divisor(how, total);
}

// Last pass of muon_input: one warp per row, 2 sizeof(T) bytes per element, bound by bandwidth.
// fp32 has one factor per row; bf16 rounds the factor, the product and the quotient.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    muon_normalise_kernel(T* x, const double* targets, const float* norms, std::int64_t all_rows,
                          std::int64_t rows, std::int64_t columns, MuonNormalisation how) {
  const std::int64_t row = row_of_warp();
  if (row >= all_rows) return;
  const double* target = targets + 2 * (row / rows);
  const double factor = row_factor(how, target[0], norms[row]);
  constexpr bool kRounds = std::is_same_v<T, BF16>;
  const float scale = kRounds ? to_float(from_float<BF16>(static_cast<float>(factor)))
                              : static_cast<float>(factor / target[1]);
  const auto divisor = static_cast<float>(target[1]);
  for (std::int64_t j = std::int64_t{lane_id()} * N; j < columns; j += kWarp * N) {
    Pack<N> values = load<N>(x + row * columns + j);
#pragma unroll
    for (float& v : values.v) {
      v *= scale;
      if constexpr (kRounds) v = to_float(from_float<BF16>(v)) / divisor;
    }
    store(x + row * columns + j, values);
  }
}

void muon_nesterov(NativeStream stream, const MuonNesterovArgs& args) {
  dispatch_both(args.grad.dtype, args.momentum.dtype, [&]<class G, class M>() {
    const NesterovInput<G, M> body{.x = args.x.as<float>(),
                                   .g = args.grad.as<G>(),
                                   .m = args.momentum.as<M>(),
                                   .nesterov = {args.scalars.as_struct<StepScalars>()}};
    launch_elementwise<Narrower<G, M>>(stream, body, args.x.numel(), {body.x, body.g, body.m});
  });
}

// The width of an access determines the order of sums. It does not depend on the gradient's type,
// so that a bf16 gradient gives the same bits as equal fp32 values.
template <class T, class G, class M>
void launch_input(NativeStream stream, const MuonInputArgs& args) {
  using Width = Narrower<T, M>;
  const std::int64_t rows = args.x.shape[0] * args.x.shape[1], columns = args.x.shape[2];
  auto* x = args.x.as<T>();
  const auto* grad = args.grad.as<G>();
  const auto* momentum = data_or_null<M>(args.momentum);
  const bool vectors =
      vectors_fit<Width>(columns, {x, momentum}) && vector_fits<kWidth<Width>>(grad);
  with_width<Width>(vectors, [&]<int N>() {
    launch_rows(muon_input_kernel<T, G, M, N>, stream, rows, x, args.row_norms.as<float>(), grad,
                momentum, Nesterov{args.scalars.as_struct<StepScalars>()}, rows, columns);
  });
}

void muon_input(NativeStream stream, const MuonInputArgs& args) {
  const std::int64_t matrices = args.x.shape[0], rows = args.x.shape[1], columns = args.x.shape[2];
  const std::int64_t all_rows = matrices * rows;
  if (args.x.numel() == 0) return;
  MUO_CHECK(2 * matrices + all_rows <= kMaxPartials, "muon_input of ", args.x.shape.text(),
            ": too many rows for a stream's scratch");
  double* targets = context_of(stream).partials;
  double* row_squares = targets + 2 * matrices;
  auto* norms = args.row_norms.as<float>();
  const DType momentum = args.momentum ? args.momentum.dtype : DType::kF32;
  const auto launch_per_matrix = [&](auto kernel, const auto&... arguments) {
    launch(kernel, static_cast<unsigned>(matrices), kWholeMatrix, 0, stream, targets, arguments...,
           rows, args.normalisation);
  };
  dispatch_packs(args.x.dtype, columns, {args.x.data}, [&]<class T, int N>() {
    auto* x = args.x.as<T>();
    dispatch_both(args.grad.dtype, momentum,
                  [&]<class G, class M>() { launch_input<T, G, M>(stream, args); });
    launch_per_matrix(&muon_target_kernel, norms);
    if constexpr (std::is_same_v<T, BF16>) {
      launch_rows(muon_rounded_squares_kernel<N>, stream, all_rows, row_squares, targets, x, norms,
                  all_rows, rows, columns, args.normalisation);
      launch_per_matrix(&muon_divisor_kernel, row_squares);
    }
    launch_rows(muon_normalise_kernel<T, N>, stream, all_rows, x, targets, norms, all_rows, rows,
                columns, args.normalisation);
  });
}

// ---- muon_scale ---------------------------------------------------------------------------------

constexpr int kStripe = 8;  // warps that share a stripe of columns

// How a stream's scratch is used: first the scale of each matrix, then sums of squares, one
// for each range of the short side and index of the long side: sums[(matrix * ranges +
// range) * length + i].
struct Scratch {
  double* scales;
  double* sums;
  std::int64_t ranges;
};

// R >= C: sums along rows. One warp per row, sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    row_sums_kernel(double* sums, const T* x, std::int64_t all_rows, std::int64_t columns) {
  const std::int64_t row = row_of_warp();
  if (row >= all_rows) return;
  double sum = 0.0;
  for (std::int64_t j = std::int64_t{lane_id()} * N; j < columns; j += kWarp * N)
    sum = add_squares(load<N>(x + row * columns + j), sum);
  sum = warp_sum(sum);
  if (lane_id() == 0) sums[row] = sum;
}

// R < C: sums along columns. A block takes a stripe of 32 N columns and one range of rows; each of
// its warps takes every kStripe-th row, and their sums are added in shared memory, in order.
// sizeof(T) bytes per element, bound by bandwidth. Grid: stripes, ranges, matrices.
template <class T, int N>
__global__ void __launch_bounds__(kStripe * 32)
    column_sums_kernel(double* sums, const T* x, std::int64_t rows, std::int64_t columns,
                       std::int64_t rows_of_range) {
  __shared__ double of_warps[kStripe][32 * N];
  const std::int64_t lane = threadIdx.x % 32;
  const std::int64_t warp = threadIdx.x / 32;
  const std::int64_t column = (std::int64_t{blockIdx.x} * 32 + lane) * N;
  const std::int64_t begin = blockIdx.y * rows_of_range;
  const std::int64_t end = min(rows, begin + rows_of_range);
  x += blockIdx.z * rows * columns;
  double squares[N] = {};
  if (column < columns)
    for (std::int64_t i = begin + warp; i < end; i += kStripe) {
      const Pack<N> values = load<N>(x + i * columns + column);
#pragma unroll
      for (int j = 0; j < N; ++j)
        squares[j] = add_square(values.v[j], squares[j]);
    }
#pragma unroll
  for (int j = 0; j < N; ++j)
    of_warps[warp][lane * N + j] = squares[j];
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

// Applies Muon+ and NorMuon to the sums: computes new_variance, and the scale of the matrix, which
// the next launch divides by the root of the variance. One block per matrix: bound by latency.
__global__ void __launch_bounds__(kWholeMatrix)
    muon_variance_kernel(Scratch scratch, float* new_variance, const float* variance,
                         const StepScalars* scalars, std::int64_t length, double n,
                         bool unit_update) {
  const std::int64_t matrix = blockIdx.x;
  const double* sums = scratch.sums + matrix * scratch.ranges * length;
  const auto sum_at = [&](std::int64_t i) {
    double sum = 0.0;
    for (std::int64_t range = 0; range < scratch.ranges; ++range)
      sum += sums[range * length + i];
    return sum;
  };
  variance += matrix * length;
  new_variance += matrix * length;
  const double total = block_sum_of<kWholeMatrix>(
      length, [&](std::int64_t i, double sum) { return sum + sum_at(i); });
  const double plus = unit_update ? sqrt(n) / fmax(sqrt(total), kMuonUpdateFloor) : 1.0;
  const float weight = 1.0F - scalars->muon_beta2;
  const double rescaled = block_sum_of<kWholeMatrix>(length, [&](std::int64_t i, double sum) {
    const double squares = sum_at(i) * plus * plus;
    const float v = lerp(variance[i], static_cast<float>(squares / n), weight);
    new_variance[i] = v;
    return sum + squares / static_cast<double>(fmaxf(v, kMuonVarianceFloor));
  });
  const double norm = plus * sqrt(total);
  if (threadIdx.x == 0)
    scratch.scales[matrix] = plus * norm / fmax(sqrt(rescaled), kMuonRescaleFloor);
}

// u = x scale / sqrt(variance of x's row or column). One warp per row: sizeof(T) + 4 bytes per
// element, bound by bandwidth. u may be x.
template <class T, int N, bool kPerRow>
__global__ void __launch_bounds__(kRowThreads)
    muon_apply_scale_kernel(float* u, const T* x, const double* scales, const float* variance,
                            std::int64_t all_rows, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = row_of_warp();
  if (row >= all_rows) return;
  const auto scale = static_cast<float>(scales[row / rows]);
  const auto factor_of = [&](float v) { return scale / sqrtf(fmaxf(v, kMuonVarianceFloor)); };
  const float factor = kPerRow ? factor_of(variance[row]) : 0.0F;
  variance += row / rows * columns;
  for (std::int64_t j = std::int64_t{lane_id()} * N; j < columns; j += kWarp * N) {
    Pack<N> values = load<N>(x + row * columns + j);
#pragma unroll
    for (int i = 0; i < N; ++i)
      values.v[i] *= kPerRow ? factor : factor_of(variance[j + i]);
    store_wide(u + row * columns + j, values);
  }
}

// The number of ranges of rows, chosen so that the blocks fill a GPU even for few matrices and that
// the sums fit into the scratch.
std::int64_t ranges_of(std::int64_t matrices, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kRowsOfRange = 128;
  const std::int64_t most = (kMaxPartials - matrices) / (matrices * std::max(rows, columns));
  MUO_CHECK(most >= 1, "muon_scale of ", matrices, " matrices of ", rows, " x ", columns,
            ": too many rows and columns for a stream's scratch");
  return rows >= columns ? 1 : std::min(ceil_div(rows, kRowsOfRange), most);
}

void muon_scale(NativeStream stream, const MuonScaleArgs& args) {
  const std::int64_t matrices = args.u.shape[0], rows = args.u.shape[1], columns = args.u.shape[2];
  if (args.u.numel() == 0) return;
  const bool per_row = rows >= columns;
  const std::int64_t all_rows = matrices * rows;
  const std::int64_t ranges = ranges_of(matrices, rows, columns);
  double* partials = context_of(stream).partials;
  const Scratch scratch{.scales = partials, .sums = partials + matrices, .ranges = ranges};
  auto* u = args.u.as<float>();
  auto* new_variance = args.new_variance.as<float>();
  dispatch_packs(args.x.dtype, columns, {u, args.x.data}, [&]<class T, int N>() {
    const T* x = args.x.as<T>();
    if (per_row)
      launch_rows(row_sums_kernel<T, N>, stream, all_rows, scratch.sums, x, all_rows, columns);
    else
      launch(column_sums_kernel<T, N>,
             dim3(blocks_for(columns, 32 * N), static_cast<unsigned>(ranges),
                  static_cast<unsigned>(matrices)),
             kStripe * 32, 0, stream, scratch.sums, x, rows, columns, ceil_div(rows, ranges));
    launch(muon_variance_kernel, static_cast<unsigned>(matrices), kWholeMatrix, 0, stream, scratch,
           new_variance, args.variance.as<float>(), args.scalars.as_struct<StepScalars>(),
           std::max(rows, columns), static_cast<double>(std::min(rows, columns)), args.unit_update);
    launch_rows(
        per_row ? muon_apply_scale_kernel<T, N, true> : muon_apply_scale_kernel<T, N, false>,
        stream, all_rows, u, x, scratch.scales, new_variance, all_rows, rows, columns);
  });
}

// ---- muon_commit --------------------------------------------------------------------------------

// Writes the state after the step if scalars.commit is set. A thread takes N consecutive elements.
// 12 bytes per element plus gradient and master, bound by bandwidth. With a bf16 momentum it is 8
// bytes, and rounding adds some 10 integer operations per element and 60 per thread.
template <class M, class G, class Master>
struct Commit {
  Master master;
  M* m;
  const float* u;
  const G* g;
  const StepScalars* scalars;
  double rate;
  StochasticRounding rounding;

  template <int N>
  struct Inputs {
    Pack<N> w, m, u, g;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {master.template load<N>(i), load_wide<N>(m + i), load_wide<N>(u + i),
            load_wide<N>(g + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Inputs<N> in,
                                         ThreadSquares& squares) const {
    if (scalars->commit == 0) return;
    const auto lr = static_cast<float>(scalars->matrix_lr * rate);
    const float decay = lr * scalars->muon_weight_decay;
    const float weight_of_gradient = 1.0F - scalars->muon_momentum;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float w_j = in.w.v[j];
      const float decayed = in.u.v[j] * w_j >= 0.0F ? decay * w_j : 0.0F;
      in.w.v[j] = w_j - fmaf(lr, in.u.v[j], decayed);
      squares.add(w_j, in.w.v[j], in.u.v[j]);
      in.m.v[j] = lerp(in.m.v[j], in.g.v[j] * scalars->gradient_scale, weight_of_gradient);
    }
    if constexpr (std::is_same_v<M, BF16>) {
      const RoundingNoise noise(rounding.random, scalars->updates);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const std::uint32_t bits = noise(rounding.begin + i + j);
        in.m.v[j] = to_float(round_stochastically(in.m.v[j], first_noise(bits)));
      }
    }
    master.store(i, in.w);
    store_wide(m + i, in.m);
  }
};

struct CommitVariance {
  static constexpr int kPacks = 1;
  float* variance;
  const float* new_variance;
  const StepScalars* scalars;

  template <int N>
  __device__ __forceinline__ Pack<N> load(std::int64_t i) const {
    return cuda::load<N>(new_variance + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Pack<N>& values) const {
    if (scalars->commit != 0) store(variance + i, values);
  }
};

void muon_commit(NativeStream stream, const MuonCommitArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (args.variance) {
    const CommitVariance body{args.variance.as<float>(), args.new_variance.as<float>(), scalars};
    launch_elementwise<float>(stream, body, args.variance.numel(),
                              {body.variance, body.new_variance});
  }
  if (!args.weight) return;
  with_master(args.weight, args.replica, [&]<class Master>(const Master& master) {
    dispatch_both(args.momentum.dtype, args.grad.dtype, [&]<class M, class G>() {
      const Commit<M, G, Master> body{.master = master,
                                      .m = args.momentum.as<M>(),
                                      .u = args.u.as<float>(),
                                      .g = args.grad.as<G>(),
                                      .scalars = scalars,
                                      .rate = args.rate,
                                      .rounding = args.rounding};
      launch_commit(stream, body, args.weight.numel(), args.squares,
                    {args.weight.data, args.replica.data, body.m, body.u, body.g});
    });
  });
}

const KernelRegistration registration(&muon_nesterov, &muon_input, &muon_scale, &muon_commit);

}  // namespace
}  // namespace muo::cuda
