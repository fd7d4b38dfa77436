#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/residual.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

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
  return {data_or_null<float>(args.alpha), data_or_null<float>(args.beta), args.sign};
}

// One warp per row, a lane every 32nd vector. x and z are read once from memory; the second pass
// finds the row in L1 (or what was stored as `mixed`). Writes y and, if kept, mixed: 2 to 4
// sizeof(T) bytes per element, bound by bandwidth. The norm is that of what is stored.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    mix_norm_kernel(T* y, float* rstd, T* mixed, const T* x, const T* z, Lambdas lambdas,
                    std::int64_t n, std::int64_t c, float eps) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const std::int64_t first = std::int64_t{lane_id()} * N;
  const float alpha = lambdas.of_x();
  const float beta = lambdas.of_z();
  const std::int64_t start = row * c;
  const auto mix = [&](std::int64_t i) {
    const Pack<N> out = scaled(alpha, load<N>(x + start + i));
    return rounded<T>(z == nullptr ? out : add_scaled(beta, load<N>(z + start + i), out));
  };
  float squares = 0.0F;
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> values = mix(i);
    squares = dot(values, values, squares);
    if (mixed != nullptr) store(mixed + start + i, values);  // mixed may be x
  }
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(c) + eps);
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> values = mixed != nullptr ? load<N>(mixed + start + i) : mix(i);
    store(y + start + i, scaled(factor, values));
  }
  if (lane_id() == 0) rstd[row] = factor;
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
    const Pack<M> d = load<M>(dx + i);
    if (z != nullptr) {
      dbeta += static_cast<double>(dot(d, load<M>(z + i), 0.0F));
      store(dz + i, add_dz ? add_scaled(beta, d, load<M>(dz + i)) : scaled(beta, d));
    }
    if (x != nullptr) {
      dalpha += static_cast<double>(dot(d, load<M>(x + i), 0.0F));
      store(dx + i, scaled(alpha, d));
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
    put_float(out, total, accumulate);
  }
};

// Element-wise: 3 sizeof(T) bytes per element, bound by bandwidth.
struct Add {
  static constexpr int kPacks = 1;
  __device__ __forceinline__ float operator()(float y, float x) const { return y + x; }
};

void mix_norm(NativeStream stream, const MixNormArgs& args) {
  const std::int64_t n = args.x.shape[0], c = args.x.shape[1];
  dispatch_packs(args.x.dtype, c, {args.y.data, args.mixed.data, args.x.data, args.z.data},
                 [&]<class T, int N>() {
                   launch_rows(mix_norm_kernel<T, N>, stream, n, args.y.as<T>(),
                               args.rstd.as<float>(), data_or_null<T>(args.mixed), args.x.as<T>(),
                               args.beta ? args.z.as<T>() : nullptr, lambdas_of(args), n, c,
                               args.eps);
                 });
}

void mix_backward(NativeStream stream, const MixBackwardArgs& args) {
  const std::int64_t count = args.dx.numel();
  const PutLambdaGradients put{.dalpha = args.alpha ? args.dalpha.as<float>() : nullptr,
                               .dbeta = args.beta ? args.dbeta.as<float>() : nullptr,
                               .sign = double{args.sign},
                               .accumulate = args.accumulate};
  // Vectors need aligned addresses only: what is left over goes one by one.
  dispatch_packs(args.dx.dtype, 0, {args.dx.data, args.dz.data, args.x.data, args.z.data},
                 [&]<class T, int N>() {
                   const unsigned blocks = blocks_for(count / N, kSumThreads * 2, kManyBlocks);
                   launch(mix_backward_kernel<T, N>, blocks, kSumThreads, 0, stream,
                          args.dx.as<T>(), args.beta ? args.dz.as<T>() : nullptr,
                          args.alpha ? args.x.as<T>() : nullptr,
                          args.beta ? args.z.as<T>() : nullptr, lambdas_of(args), args.add_dz,
                          count, context_of(stream).partials);
                   finish_sums(stream, blocks, 2, put);
                 });
}

void add(NativeStream stream, const AddArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    launch_map(stream, args.y.numel(), Add{}, args.y.as<T>(), args.y.as<T>(), args.x.as<T>());
  });
}

const KernelRegistration registration(&mix_norm, &mix_backward, &add);

}  // namespace
}  // namespace muo::cuda
