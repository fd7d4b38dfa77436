#include "kernels/cuda/index_check.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/rotary.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 256;

// Runs once, at start-up: one thread per entry, in fp64.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary_table_kernel(T* cosines, T* sines, std::int64_t t, std::int64_t half, double base) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= t * half) return;
  const double frequency = pow(base, -static_cast<double>(i % half) / static_cast<double>(half));
  const double angle = static_cast<double>(i / half) * frequency;
  cosines[i] = from_float<T>(static_cast<float>(cos(angle)));
  sines[i] = from_float<T>(static_cast<float>(sin(angle)));
}

// Addressing of head rows and their angles. In both kernels, kLanes adjacent lanes share a row, and
// a lane has every kLanes-th vector of either half; for rows of 64 or 128 bf16 that is one vector.
struct Rows {
  std::int64_t count, half;
  std::uint32_t heads, t;  // a 64-bit division would cost as much as the rest of the kernel
  std::int64_t first_position;

  __device__ __forceinline__ std::int64_t angles_of(std::int64_t row) const {
    return (first_position + static_cast<std::uint32_t>(row) / heads % t) * half;
  }
};
// The first position of each sequence, in device memory.
struct Positions {
  const std::int32_t* of;  // first position of each sequence
  std::int64_t table_rows;

  // The whole warp calls it.
  __device__ __forceinline__ std::int64_t angles_of(std::int64_t row, const Rows& rows) const {
    const std::int64_t sequence =
        row < rows.count ? static_cast<std::uint32_t>(row) / rows.heads / rows.t : 0;
    const std::int32_t position = of[sequence];
    const std::int64_t end = table_rows - rows.angles_of(row) / rows.half;
    check_index(0 <= position && position < end, "rotary_norm: position", position, sequence, 0,
                end);
    return rows.angles_of(row) + position * rows.half;
  }
};
template <int kLanes>
__device__ __forceinline__ std::int64_t row_of_thread() {
  return (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
}

// Reads x (the second time from L1) and the angles, which are in L2; writes x and one rstd per row:
// 2 sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N, int kLanes>
__device__ __forceinline__ void rotary_norm_row(T* x, float* rstd, const T* cosines, const T* sines,
                                                const Rows& rows, std::int64_t row,
                                                std::int64_t angles, float scale, float eps) {
  const std::int64_t half = row < rows.count ? rows.half : 0;  // others only join the warp's sum
  const std::int64_t first = threadIdx.x % kLanes * N;
  x += row * rows.half * 2;
  const auto rotated = [&](std::int64_t j, Pack<N>& r1, Pack<N>& r2) {
    const Pack<N> x1 = load<N>(x + j);
    const Pack<N> x2 = load<N>(x + half + j);
    const Pack<N> c = load<N>(cosines + angles + j);
    const Pack<N> s = load<N>(sines + angles + j);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      r1.v[i] = fmaf(x1.v[i], c.v[i], x2.v[i] * s.v[i]);
      r2.v[i] = fmaf(-x1.v[i], s.v[i], x2.v[i] * c.v[i]);
    }
  };
  Pack<N> r1, r2;
  float squares = 0.0F;
  for (std::int64_t j = first; j < half; j += kLanes * N) {
    rotated(j, r1, r2);
    squares = dot(r1, r1, dot(r2, r2, squares));
  }
  const float mean = warp_sum<kLanes>(squares) / static_cast<float>(2 * rows.half);
  const float factor = 1.0F / sqrtf(mean + eps);
  for (std::int64_t j = first; j < half; j += kLanes * N) {
    rotated(j, r1, r2);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      r1.v[i] *= scale * factor;
      r2.v[i] *= scale * factor;
    }
    store(x + j, r1);
    store(x + half + j, r2);
  }
  if (half > 0 && first == 0) rstd[row] = factor;
}
template <class T, int N, int kLanes>
__global__ void __launch_bounds__(kThreads)
    rotary_norm_kernel(T* x, float* rstd, const T* cosines, const T* sines, Rows rows, float scale,
                       float eps) {
  const std::int64_t row = row_of_thread<kLanes>();
  rotary_norm_row<T, N, kLanes>(x, rstd, cosines, sines, rows, row, rows.angles_of(row), scale,
                                eps);
}
// A separate kernel, because the check of positions takes registers.
template <class T, int N, int kLanes>
__global__ void __launch_bounds__(kThreads, 2)
    rotary_norm_at_kernel(T* x, float* rstd, const T* cosines, const T* sines, Rows rows,
                          Positions positions, float scale, float eps) {
  const std::int64_t row = row_of_thread<kLanes>();
  rotary_norm_row<T, N, kLanes>(x, rstd, cosines, sines, rows, row, positions.angles_of(row, rows),
                                scale, eps);
}

// Reads dx and y (the second time from L1), writes dx: 3 sizeof(T) bytes per element,
// bound by bandwidth.
template <class T, int N, int kLanes>
__global__ void __launch_bounds__(kThreads)
    rotary_norm_backward_kernel(T* dx, const T* y, const float* rstd, const T* cosines,
                                const T* sines, Rows rows, float scale) {
  const std::int64_t row = row_of_thread<kLanes>();
  const std::int64_t half = row < rows.count ? rows.half : 0;
  const std::int64_t angles = rows.angles_of(row);
  const std::int64_t first = threadIdx.x % kLanes * N;
  dx += row * rows.half * 2;
  y += row * rows.half * 2;
  float sum = 0.0F;
  for (std::int64_t j = first; j < half; j += kLanes * N)
    sum = dot(load<N>(dx + j), load<N>(y + j),
              dot(load<N>(dx + half + j), load<N>(y + half + j), sum));
  // yhat mean(dy yhat) = y dot(dy, y) / (scale^2 h)
  const float mean = warp_sum<kLanes>(sum) / (scale * scale * static_cast<float>(2 * rows.half));
  if (half == 0) return;
  const float factor = scale * rstd[row];
  for (std::int64_t j = first; j < half; j += kLanes * N) {
    Pack<N> d1 = load<N>(dx + j);
    Pack<N> d2 = load<N>(dx + half + j);
    const Pack<N> y1 = load<N>(y + j);
    const Pack<N> y2 = load<N>(y + half + j);
    const Pack<N> c = load<N>(cosines + angles + j);
    const Pack<N> s = load<N>(sines + angles + j);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float r1 = factor * fmaf(-y1.v[i], mean, d1.v[i]);
      const float r2 = factor * fmaf(-y2.v[i], mean, d2.v[i]);
      d1.v[i] = fmaf(-r2, s.v[i], r1 * c.v[i]);
      d2.v[i] = fmaf(r1, s.v[i], r2 * c.v[i]);
    }
    store(dx + j, d1);
    store(dx + half + j, d2);
  }
}

// Calls body.operator()<T, N, kLanes>() for rows of two halves, with `addresses` of the tensors and
// as few lanes per row as are needed to leave none idle.
template <class Body>
void with_lanes(DType dtype, std::int64_t half, std::initializer_list<const void*> addresses,
                const Body& body) {
  dispatch_packs(dtype, half, addresses, [&]<class T, int N>() {
    const std::int64_t lanes = ceil_div(half, N);
    if (lanes <= 4)
      body.template operator()<T, N, 4>();
    else if (lanes <= 8)
      body.template operator()<T, N, 8>();
    else if (lanes <= 16)
      body.template operator()<T, N, 16>();
    else
      body.template operator()<T, N, 32>();
  });
}

void rotary_table(NativeStream stream, const RotaryTableArgs& args) {
  const std::int64_t t = args.cos.shape[0], half = args.cos.shape[1];
  dispatch(args.cos.dtype, [&]<class T>() {
    launch(rotary_table_kernel<T>, blocks_for(t * half, kThreads), kThreads, 0, stream,
           args.cos.as<T>(), args.sin.as<T>(), t, half, args.base);
  });
}

Rows rows_of(const Tensor& x, std::int64_t first_position) {
  MUO_CHECK(x.numel() / x.shape[3] < std::int64_t{1} << 32, "rotary of ", x.shape.text(),
            ": more than 2^32 head rows");
  return {.count = x.shape[0] * x.shape[1] * x.shape[2],
          .half = x.shape[3] / 2,
          .heads = static_cast<std::uint32_t>(x.shape[2]),
          .t = static_cast<std::uint32_t>(x.shape[1]),
          .first_position = first_position};
}

void rotary_norm(NativeStream stream, const RotaryNormArgs& args) {
  const Rows rows = rows_of(args.x, args.first_position);
  if (rows.count == 0) return;
  with_lanes(args.x.dtype, rows.half, {args.x.data, args.cos.data, args.sin.data},
             [&]<class T, int N, int kLanes>() {
               const unsigned blocks = blocks_for(rows.count, kThreads / kLanes);
               auto* const x = args.x.as<T>();
               auto* const rstd = args.rstd.as<float>();
               if (args.positions)
                 launch(rotary_norm_at_kernel<T, N, kLanes>, blocks, kThreads, 0, stream, x, rstd,
                        args.cos.as<T>(), args.sin.as<T>(), rows,
                        Positions{args.positions.as<std::int32_t>(), args.cos.shape[0]}, args.scale,
                        args.eps);
               else
                 launch(rotary_norm_kernel<T, N, kLanes>, blocks, kThreads, 0, stream, x, rstd,
                        args.cos.as<T>(), args.sin.as<T>(), rows, args.scale, args.eps);
             });
}

void rotary_norm_backward(NativeStream stream, const RotaryNormBackwardArgs& args) {
  const Rows rows = rows_of(args.y, 0);
  if (rows.count == 0) return;
  with_lanes(args.y.dtype, rows.half, {args.dx.data, args.y.data, args.cos.data, args.sin.data},
             [&]<class T, int N, int kLanes>() {
               launch(rotary_norm_backward_kernel<T, N, kLanes>,
                      blocks_for(rows.count, kThreads / kLanes), kThreads, 0, stream,
                      args.dx.as<T>(), args.y.as<T>(), args.rstd.as<float>(), args.cos.as<T>(),
                      args.sin.as<T>(), rows, args.scale);
             });
}

const KernelRegistration registration(&rotary_table, &rotary_norm, &rotary_norm_backward);

}  // namespace
}  // namespace muo::cuda
