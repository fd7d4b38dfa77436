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

constexpr double kRowFloor = 1e-6;  // MuonEq's clamp of a row's norm

constexpr int kThreads = 128;
constexpr std::int64_t kRows = kThreads / kWarp;  // of a block
constexpr int kWholeMatrix = 512;                 // threads where one block serves one matrix
constexpr int kPack = kWidth<BF16>;               // neighbours of one thread where types mix

// Of `values` in fp64, which adds 2 operations to the 10 and more bytes of an element.
template <int N>
__device__ __forceinline__ double add_squares(const Pack<N>& values, double sum) {
#pragma unroll
  for (const float v : values.v)
    sum = fma(static_cast<double>(v), static_cast<double>(v), sum);
  return sum;
}

template <int N>
__device__ __forceinline__ Pack<N> nesterov(const Pack<N>& g, const Pack<N>& m, float mu) {
  Pack<N> out;
#pragma unroll
  for (int j = 0; j < N; ++j)
    out.v[j] = lerp(g.v[j], lerp(m.v[j], g.v[j], 1.0F - mu), mu);
  return out;
}

// Element-wise: 12 bytes per element, bound by bandwidth.
struct Nesterov {
  static constexpr int kPacks = 2;
  float* x;
  const float* g;
  const float* m;
  const StepScalars* scalars;

  template <int N>
  struct Inputs {
    Pack<N> g, m;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {cuda::load<N>(g + i), cuda::load<N>(m + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Inputs<N>& in) const {
    store(x + i, nesterov(in.g, in.m, scalars->muon_momentum));
  }
};

// First pass of muon_input: the Nesterov input (or the gradient, without momentum) as it is stored,
// and the norms of its rows. One warp per row: 8 bytes read and sizeof(T) written per element,
// bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    muon_input_kernel(T* x, float* norms, const float* g, const float* m,
                      const StepScalars* scalars, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= rows) return;
  const float mu = scalars->muon_momentum;
  double squares = 0.0;
  for (std::int64_t j = std::int64_t{threadIdx.x % 32} * N; j < columns; j += kWarp * N) {
    const std::int64_t i = row * columns + j;
    Pack<N> values = load_wide<N>(g + i);
    if (m != nullptr) values = nesterov(values, load_wide<N>(m + i), mu);
    values = rounded<T>(values);
    squares = add_squares(values, squares);
    store_wide(x + i, values);
  }
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) norms[row] = static_cast<float>(sqrt(squares));
}

// What a row is scaled by before the norm divides.
__device__ __forceinline__ double row_factor(const MuonNormalisation& how, double target,
                                             float norm) {
  return how.equilibrate ? target / fmax(static_cast<double>(norm), kRowFloor) : 1.0;
}
__device__ __forceinline__ double divisor(const MuonNormalisation& how, double sum_of_squares) {
  return sqrt(sum_of_squares) * how.factor + how.eps;
}

// What every row of a matrix is scaled to, and what divides the result: partials[2 k] and [2 k + 1]
// of matrix k. One block per matrix, R norms from L2: latency.
__global__ void __launch_bounds__(kWholeMatrix)
    muon_target_kernel(double* partials, const float* norms, std::int64_t rows,
                       MuonNormalisation how) {
  norms += blockIdx.x * rows;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kWholeMatrix) {
    const double norm{norms[i]};
    sum = fma(norm, norm, sum);
  }
  const double target = sqrt(block_sum(sum) / static_cast<double>(rows));
  double scaled = 0.0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kWholeMatrix) {
    const double after = double{norms[i]} * row_factor(how, target, norms[i]);
    scaled = fma(after, after, scaled);
  }
  scaled = block_sum(scaled);
  if (threadIdx.x != 0) return;
  partials[2 * blockIdx.x] = target;
  partials[2 * blockIdx.x + 1] = divisor(how, scaled);
}

// Only bf16: nanochat rounds a row's factor and product before it takes the norm of what is there,
// so that sum needs a pass of its own. One warp per row: reads 2 bytes per element. row_squares
// lies after the targets of all matrices.
template <int N>
__global__ void __launch_bounds__(kThreads)
    muon_rounded_squares_kernel(double* row_squares, const double* targets, const BF16* x,
                                const float* norms, std::int64_t all_rows, std::int64_t rows,
                                std::int64_t columns, MuonNormalisation how) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= all_rows) return;
  const double factor = row_factor(how, targets[2 * (row / rows)], norms[row]);
  const float scale = to_float(from_float<BF16>(static_cast<float>(factor)));
  double squares = 0.0;
  for (std::int64_t j = std::int64_t{threadIdx.x % 32} * N; j < columns; j += kWarp * N) {
    Pack<N> values = load<N>(x + row * columns + j);
#pragma unroll
    for (float& v : values.v)
      v *= scale;
    squares = add_squares(rounded<BF16>(values), squares);
  }
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) row_squares[row] = squares;
}

__global__ void __launch_bounds__(kWholeMatrix)
    muon_divisor_kernel(double* targets, const double* row_squares, std::int64_t rows,
                        MuonNormalisation how) {
  row_squares += blockIdx.x * rows;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kWholeMatrix)
    sum += row_squares[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) targets[2 * blockIdx.x + 1] = divisor(how, sum);
}

// Last pass of muon_input: one warp per row, 2 sizeof(T) bytes per element, bound by bandwidth.
// fp32 has one factor a row; bf16 rounds the factor, the product and the quotient.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    muon_normalise_kernel(T* x, const double* targets, const float* norms, std::int64_t all_rows,
                          std::int64_t rows, std::int64_t columns, MuonNormalisation how) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= all_rows) return;
  const double* target = targets + 2 * (row / rows);
  const double factor = row_factor(how, target[0], norms[row]);
  constexpr bool kRounds = std::is_same_v<T, BF16>;
  const float scale = kRounds ? to_float(from_float<BF16>(static_cast<float>(factor)))
                              : static_cast<float>(factor / target[1]);
  const auto divisor = static_cast<float>(target[1]);
  for (std::int64_t j = std::int64_t{threadIdx.x % 32} * N; j < columns; j += kWarp * N) {
    Pack<N> values = load<N>(x + row * columns + j);
#pragma unroll
    for (float& v : values.v) {
      v *= scale;
      if constexpr (kRounds) v = to_float(from_float<BF16>(v)) / divisor;
    }
    store(x + row * columns + j, values);
  }
}

// The state after the step, if every rank agreed that it is finite: else nothing. A thread takes N
// neighbours: 24 bytes per element and 2 for the replica, bound by bandwidth.
struct Commit {
  static constexpr int kPacks = 1;
  float* w;
  BF16* replica;
  float* m;
  const float* u;
  const float* g;
  const StepScalars* scalars;
  double rate;

  template <int N>
  struct Inputs {
    Pack<N> w, m, u, g;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {load_wide<N>(w + i), load_wide<N>(m + i), load_wide<N>(u + i), load_wide<N>(g + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Inputs<N> in) const {
    if (scalars->commit == 0) return;
    const auto lr = static_cast<float>(scalars->matrix_lr * rate);
    const float decay = lr * scalars->muon_weight_decay;
    const float weight_of_gradient = 1.0F - scalars->muon_momentum;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float w_j = in.w.v[j];
      const float decayed = in.u.v[j] * w_j >= 0.0F ? decay * w_j : 0.0F;
      in.w.v[j] = w_j - fmaf(lr, in.u.v[j], decayed);
      in.m.v[j] = lerp(in.m.v[j], in.g.v[j] * scalars->gradient_scale, weight_of_gradient);
    }
    store_wide(w + i, in.w);
    store_wide(m + i, in.m);
    if (replica != nullptr) store_wide(replica + i, in.w);
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

void muon_nesterov(NativeStream stream, const MuonNesterovArgs& args) {
  const Nesterov body{args.x.as<float>(), args.grad.as<float>(), args.momentum.as<float>(),
                      args.scalars.as_struct<StepScalars>()};
  with_width<float>(vectors_fit<float>(0, {body.x, body.g, body.m}),
                    [&]<int N>() { launch_elementwise<N>(stream, body, args.x.numel()); });
}

void muon_input(NativeStream stream, const MuonInputArgs& args) {
  const std::int64_t matrices = args.x.shape[0];
  const std::int64_t rows = args.x.shape[1];
  const std::int64_t columns = args.x.shape[2];
  const std::int64_t all_rows = matrices * rows;
  if (args.x.numel() == 0) return;
  const StreamContext& context = context_of(stream);
  MUO_CHECK(2 * matrices + all_rows <= kMostPartials, "muon_input of ", args.x.shape.text(),
            ": more rows than a stream has scratch for");
  double* targets = context.partials;
  double* row_squares = targets + 2 * matrices;
  auto* norms = args.row_norms.as<float>();
  const auto* momentum = args.momentum ? args.momentum.as<float>() : nullptr;
  const unsigned blocks = blocks_for(all_rows, kRows);
  const auto one_per_matrix = static_cast<unsigned>(matrices);
  const MuonNormalisation& how = args.normalisation;
  dispatch(args.x.dtype, [&]<class T>() {
    auto* x = args.x.as<T>();
    const bool fit = vectors_fit<T>(columns, {x, args.grad.data, momentum});
    with_width<T>(fit, [&]<int N>() {
      launch(muon_input_kernel<T, N>, blocks, kThreads, 0, stream, x, norms, args.grad.as<float>(),
             momentum, args.scalars.as_struct<StepScalars>(), all_rows, columns);
      launch(muon_target_kernel, one_per_matrix, kWholeMatrix, 0, stream, targets, norms, rows,
             how);
      if constexpr (std::is_same_v<T, BF16>) {
        launch(muon_rounded_squares_kernel<N>, blocks, kThreads, 0, stream, row_squares, targets, x,
               norms, all_rows, rows, columns, how);
        launch(muon_divisor_kernel, one_per_matrix, kWholeMatrix, 0, stream, targets, row_squares,
               rows, how);
      }
      launch(muon_normalise_kernel<T, N>, blocks, kThreads, 0, stream, x, targets, norms, all_rows,
             rows, columns, how);
    });
  });
}

void muon_commit(NativeStream stream, const MuonCommitArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (args.variance) {
    const CommitVariance body{args.variance.as<float>(), args.new_variance.as<float>(), scalars};
    with_width<float>(vectors_fit<float>(0, {body.variance, body.new_variance}),
                      [&]<int N>() { launch_elementwise<N>(stream, body, args.variance.numel()); });
  }
  if (!args.weight) return;
  const Commit body{.w = args.weight.as<float>(),
                    .replica = args.replica ? args.replica.as<BF16>() : nullptr,
                    .m = args.momentum.as<float>(),
                    .u = args.u.as<float>(),
                    .g = args.grad.as<float>(),
                    .scalars = scalars,
                    .rate = args.rate};
  if (vectors_fit<BF16>(0, {body.w, body.replica, body.m, body.u, body.g}))
    launch_elementwise<kPack>(stream, body, args.weight.numel());
  else
    launch_elementwise<1>(stream, body, args.weight.numel());
}

const KernelRegistration<MuonNesterovArgs> nesterov_registration(&muon_nesterov);
const KernelRegistration<MuonInputArgs> input_registration(&muon_input);
const KernelRegistration<MuonCommitArgs> commit_registration(&muon_commit);

}  // namespace
}  // namespace muo::cuda
