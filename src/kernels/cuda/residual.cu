#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/residual.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

// The learned weights, on the device; null stands for the default.
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

// One warp per row; a lane takes every 32nd vector. x and z are read from memory once and mixed
// twice. Writes y and, if given, mixed: 2 to 4 sizeof(T) bytes per element, bound by bandwidth. The
// norm is that of the stored values.
template <class T, int N, int K>
__global__ void __launch_bounds__(kRowThreads)
    mix_norm_kernel(T* y, float* rstd, T* mixed, const T* x, const T* z, Lambdas lambdas,
                    std::int64_t n, std::int64_t c, float eps) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const std::int64_t start = row * c;
  const float alpha = lambdas.of_x();
  const float beta = lambdas.of_z();
  const HeldRow<T, N, K> of_x(x + start, c);
  const HeldRow<T, N, K> of_z(z == nullptr ? z : z + start, z == nullptr ? 0 : c);
  const auto mix = [&](int k, std::int64_t i) {
    const Pack<N> out = scaled(alpha, of_x.at(k, i));
    return rounded<T>(z == nullptr ? out : add_scaled(beta, of_z.at(k, i), out));
  };
  float squares = 0.0F;
  each_access<N, K>(c, [&](int k, std::int64_t i) {
    const Pack<N> values = mix(k, i);
    squares = dot(values, values, squares);
  });
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(c) + eps);
  each_access<N, K>(c, [&](int k, std::int64_t i) {
    const Pack<N> values = mix(k, i);
    if (mixed != nullptr) store(mixed + start + i, values);  // mixed may be x
    store(y + start + i, scaled(factor, values));
  });
  if (lane_id() == 0) rstd[row] = factor;
}

// Plain data. Without alpha, x is null; with alpha, y is null; without beta, z and dz are null.
template <class T>
struct MixNormBackward {
  T* dx;
  T* dz;
  const T* dy;
  const T* y;
  const float* rstd;
  const T* x;
  const T* z;
  Lambdas lambdas;
  bool add_dx;
  bool add_dz;
  std::int64_t n;
  std::int64_t c;
};

// One warp per row, grid-stride; a lane takes every 32nd vector. Reads dy, x and z (twice, the
// second time from L1), reads dx and dz if it adds to them, and writes these two: up to 7
// sizeof(T) bytes per element, bound by bandwidth. Sums are fp32 within a lane's part of a row,
// and fp64 beyond.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads, 8)
    mix_norm_backward_kernel(MixNormBackward<T> a, double* partials) {
  const float alpha = a.lambdas.of_x();
  const float beta = a.lambdas.of_z();
  double dalpha = 0.0;
  double dbeta = 0.0;
  for (std::int64_t row = row_of_warp(); row < a.n; row += gridDim.x * kRowsOfBlock) {
    const std::int64_t begin = row * a.c + std::int64_t{lane_id()} * N;
    const std::int64_t end = (row + 1) * a.c;
    const float factor = a.rstd[row];
    const auto y = [&](std::int64_t i) {
      if (a.x == nullptr) return load<N>(a.y + i);
      const Pack<N> of_x = scaled(alpha, load<N>(a.x + i));
      const Pack<N> mixed =
          rounded<T>(a.z == nullptr ? of_x : add_scaled(beta, load<N>(a.z + i), of_x));
      return rounded<T>(scaled(factor, mixed));
    };
    float sum = 0.0F;
    for (std::int64_t i = begin; i < end; i += kWarp * N)
      sum = dot(load<N>(a.dy + i), y(i), sum);
    const float mean = warp_sum(sum) / static_cast<float>(a.c);
    float sum_x = 0.0F;
    float sum_z = 0.0F;
    for (std::int64_t i = begin; i < end; i += kWarp * N) {
      const Pack<N> centred = add_scaled(-mean, y(i), load<N>(a.dy + i));
      const Pack<N> d = rounded<T>(a.add_dx ? add_scaled(factor, centred, load<N>(a.dx + i))
                                            : scaled(factor, centred));
      if (a.z != nullptr) {
        sum_z = dot(d, load<N>(a.z + i), sum_z);
        store(a.dz + i, a.add_dz ? add_scaled(beta, d, load<N>(a.dz + i)) : scaled(beta, d));
      }
      if (a.x != nullptr) sum_x = dot(d, load<N>(a.x + i), sum_x);
      store(a.dx + i, scaled(alpha, d));
    }
    dalpha += static_cast<double>(sum_x);
    dbeta += static_cast<double>(sum_z);
  }
  write_partial(partials, gridDim.x, 0, dalpha);
  write_partial(partials, gridDim.x, 1, dbeta);
}

struct PutLambdaGradients {
  float* dalpha;  // null if absent
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
  dispatch_held_rows(args.x.dtype, c, {args.y.data, args.mixed.data, args.x.data, args.z.data},
                     [&]<class T, int N, int K>() {
                       launch_rows(mix_norm_kernel<T, N, K>, stream, n, args.y.as<T>(),
                                   args.rstd.as<float>(), data_or_null<T>(args.mixed),
                                   args.x.as<T>(), args.beta ? args.z.as<T>() : nullptr,
                                   lambdas_of(args), n, c, args.eps);
                     });
}

void mix_norm_backward(NativeStream stream, const MixNormBackwardArgs& args) {
  const std::int64_t n = args.dx.shape[0], c = args.dx.shape[1];
  const Tensor none;
  const Tensor& x = args.alpha ? args.x : none;
  const Tensor& y = args.alpha ? none : args.y;
  const Tensor& z = args.beta ? args.z : none;
  const Tensor& dz = args.beta ? args.dz : none;
  const PutLambdaGradients put{.dalpha = args.alpha ? args.dalpha.as<float>() : nullptr,
                               .dbeta = args.beta ? args.dbeta.as<float>() : nullptr,
                               .sign = double{args.sign},
                               .accumulate = args.accumulate};
  const unsigned blocks = blocks_for(n, kRowsOfBlock, kManyBlocks);
  dispatch_packs(args.dx.dtype, c, {args.dx.data, dz.data, args.dy.data, y.data, x.data, z.data},
                 [&]<class T, int N>() {
                   const MixNormBackward<T> body{.dx = args.dx.as<T>(),
                                                 .dz = data_or_null<T>(dz),
                                                 .dy = args.dy.as<T>(),
                                                 .y = data_or_null<T>(y),
                                                 .rstd = args.rstd.as<float>(),
                                                 .x = data_or_null<T>(x),
                                                 .z = data_or_null<T>(z),
                                                 .lambdas = lambdas_of(args),
                                                 .add_dx = args.add_dx,
                                                 .add_dz = args.add_dz,
                                                 .n = n,
                                                 .c = c};
                   launch(mix_norm_backward_kernel<T, N>, blocks, kRowThreads, 0, stream, body,
                          context_of(stream).partials);
                 });
  finish_sums(stream, blocks, 2, put);
}

void add(NativeStream stream, const AddArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    launch_map(stream, args.y.numel(), Add{}, args.y.as<T>(), args.y.as<T>(), args.x.as<T>());
  });
}

const KernelRegistration registration(&mix_norm, &mix_norm_backward, &add);

}  // namespace
}  // namespace muo::cuda
