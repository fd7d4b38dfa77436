#include "kernels/cuda/block.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/sums.h"
#include "kernels/operation.h"
#include "kernels/residual.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kRows = kThreads / kWarp;  // of a block

// What mixes, on the device: null counts as the value it is absent for.
struct Lambdas {
  const float* alpha;
  const float* beta;
  float sign;

  __device__ __forceinline__ float of_x() const { return alpha == nullptr ? 1.0F : *alpha; }
  __device__ __forceinline__ float of_z() const { return beta == nullptr ? 0.0F : sign * *beta; }
};
template <class Args>
Lambdas lambdas_of(const Args& args) {
  return {args.alpha ? args.alpha.template as<float>() : nullptr,
          args.beta ? args.beta.template as<float>() : nullptr, args.sign};
}
template <class T>
T* pointer_or_null(const Tensor& tensor) {
  return tensor ? tensor.as<T>() : nullptr;
}

// One warp per row, a lane every 32nd vector. x and z are read once from memory; the second pass
// finds the row in L1 (or what was stored as `mixed`). Writes y and, if kept, mixed: 2 to 4
// sizeof(T) bytes per element, bound by bandwidth. The norm is that of what is stored.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    mix_norm_kernel(T* y, float* rstd, T* mixed, const T* x, const T* z, Lambdas lambdas,
                    std::int64_t n, std::int64_t c, float eps) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= n) return;
  const std::int64_t first = std::int64_t{threadIdx.x % 32} * N;
  const float alpha = lambdas.of_x();
  const float beta = lambdas.of_z();
  const std::int64_t start = row * c;
  const auto mix = [&](std::int64_t i) {
    Pack<N> out = load<N>(x + start + i);
#pragma unroll
    for (float& v : out.v)
      v *= alpha;
    if (z != nullptr) {
      const Pack<N> other = load<N>(z + start + i);
#pragma unroll
      for (int j = 0; j < N; ++j)
        out.v[j] = fmaf(beta, other.v[j], out.v[j]);
    }
    return rounded<T>(out);
  };
  float squares = 0.0F;
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> values = mix(i);
    squares = dot(values, values, squares);
    if (mixed != nullptr) store(mixed + start + i, values);  // mixed may be x
  }
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(c) + eps);
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    Pack<N> values = mixed != nullptr ? load<N>(mixed + start + i) : mix(i);
#pragma unroll
    for (float& v : values.v)
      v *= factor;
    store(y + start + i, values);
  }
  if (threadIdx.x % 32 == 0) rstd[row] = factor;
}

// Element-wise by strides of the grid, with the two inner products on the way: fp32 within an
// access, fp64 beyond. Reads dx, x, z (and dz to add to it), writes dx and dz: up to 6 sizeof(T)
// bytes per element, bound by bandwidth. Elements left over by vectors are taken by block 0.
template <class T, int N>
__global__ void __launch_bounds__(kSumThreads)
    mix_backward_kernel(T* dx, T* dz, const T* x, const T* z, Lambdas lambdas, bool add_dz,
                        std::int64_t count, double* partials) {
  const float alpha = lambdas.of_x();
  const float beta = lambdas.of_z();
  double dalpha = 0.0;
  double dbeta = 0.0;
  const auto step = [&]<int M>(std::int64_t i) {
    Pack<M> d = load<M>(dx + i);
    if (z != nullptr) {
      dbeta += static_cast<double>(dot(d, load<M>(z + i), 0.0F));
      Pack<M> out;
      if (add_dz) out = load<M>(dz + i);
#pragma unroll
      for (int j = 0; j < M; ++j)
        out.v[j] = add_dz ? fmaf(beta, d.v[j], out.v[j]) : beta * d.v[j];
      store(dz + i, out);
    }
    if (x != nullptr) {
      dalpha += static_cast<double>(dot(d, load<M>(x + i), 0.0F));
#pragma unroll
      for (float& v : d.v)
        v *= alpha;
      store(dx + i, d);
    }
  };
  const std::int64_t packs = count / N;
  const std::int64_t stride = std::int64_t{gridDim.x} * kSumThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < packs;
       i += stride)
    step.template operator()<N>(i * N);
  if constexpr (N > 1)
    if (const std::int64_t i = packs * N + threadIdx.x; blockIdx.x == 0 && i < count)
      step.template operator()<1>(i);
  leave_partial(partials, gridDim.x, 0, dalpha);
  leave_partial(partials, gridDim.x, 1, dbeta);
}

struct PutLambdaGradients {
  float* dalpha;  // null: not wanted
  float* dbeta;
  double sign;
  bool accumulate;

  __device__ void operator()(int sum, double total) const {
    float* out = sum == 0 ? dalpha : dbeta;
    if (out == nullptr) return;
    if (sum == 1) total *= sign;
    *out = static_cast<float>(accumulate ? static_cast<double>(*out) + total : total);
  }
};

// 3 sizeof(T) bytes per element, bound by bandwidth.
template <class T>
struct Add {
  static constexpr int kPacks = 1;
  T* y;
  const T* x;

  template <int N>
  struct Inputs {
    Pack<N> y, x;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {cuda::load<N>(y + i), cuda::load<N>(x + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Inputs<N> in) const {
#pragma unroll
    for (int j = 0; j < N; ++j)
      in.y.v[j] += in.x.v[j];
    store(y + i, in.y);
  }
};

void mix_norm(NativeStream stream, const MixNormArgs& args) {
  const std::int64_t n = args.x.shape[0];
  const std::int64_t c = args.x.shape[1];
  if (n == 0) return;
  dispatch(args.x.dtype, [&]<class T>() {
    const bool fit = vectors_fit<T>(c, {args.y.data, args.mixed.data, args.x.data, args.z.data});
    with_width<T>(fit, [&]<int N>() {
      launch(mix_norm_kernel<T, N>, blocks_for(n, kRows), kThreads, 0, stream, args.y.as<T>(),
             args.rstd.as<float>(), pointer_or_null<T>(args.mixed), args.x.as<T>(),
             args.beta ? args.z.as<T>() : nullptr, lambdas_of(args), n, c, args.eps);
    });
  });
}

void mix_backward(NativeStream stream, const MixBackwardArgs& args) {
  const std::int64_t count = args.dx.numel();
  const PutLambdaGradients put{.dalpha = args.alpha ? args.dalpha.as<float>() : nullptr,
                               .dbeta = args.beta ? args.dbeta.as<float>() : nullptr,
                               .sign = double{args.sign},
                               .accumulate = args.accumulate};
  dispatch(args.dx.dtype, [&]<class T>() {
    // Vectors need aligned addresses only: what is left over goes one by one.
    const bool fit = vectors_fit<T>(0, {args.dx.data, args.dz.data, args.x.data, args.z.data});
    with_width<T>(fit, [&]<int N>() {
      const unsigned blocks = blocks_for(count / N, kSumThreads * 2, kManyBlocks);
      launch(mix_backward_kernel<T, N>, blocks, kSumThreads, 0, stream, args.dx.as<T>(),
             args.beta ? args.dz.as<T>() : nullptr, args.alpha ? args.x.as<T>() : nullptr,
             args.beta ? args.z.as<T>() : nullptr, lambdas_of(args), args.add_dz, count,
             context_of(stream).partials);
      finish_sums(stream, blocks, 2, put);
    });
  });
}

void add(NativeStream stream, const AddArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    with_width<T>(vectors_fit<T>(0, {args.y.data, args.x.data}), [&]<int N>() {
      launch_elementwise<N>(stream, Add<T>{args.y.as<T>(), args.x.as<T>()}, args.y.numel());
    });
  });
}

const KernelRegistration<MixNormArgs> forward(&mix_norm);
const KernelRegistration<MixBackwardArgs> backward(&mix_backward);
const KernelRegistration<AddArgs> addition(&add);

}  // namespace
}  // namespace muo::cuda
