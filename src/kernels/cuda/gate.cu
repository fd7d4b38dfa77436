#include <algorithm>

#include "kernels/cuda/index_check.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/gate.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

MUO_SHARED_MEMORY

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// One warp per row. Lane k computes the gate of head k, a dot product of a dozen channels. Then
// each lane processes every 32nd pack of the row, with the gate taken from the lane that computed
// it. Reads v and a row of the table, writes v: 3 sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    value_embedding_kernel(T* __restrict__ v, float* __restrict__ gates, const T* __restrict__ x,
                           const T* __restrict__ weight, const T* __restrict__ table,
                           const std::int32_t* __restrict__ tokens, std::int64_t n,
                           std::int64_t vocab, std::int64_t c, int heads, int h, int g) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const int lane = lane_id();
  const std::int32_t token = tokens[row];
  check_index(0 <= token && token < vocab, "embedding: token", token, row, 0, vocab);
  table += std::int64_t{token} * heads * h;
  v += row * heads * h;
  x += row * c;
  for (int first_head = 0; first_head < heads; first_head += 32) {
    float gate = 0.0F;
    if (const int k = first_head + lane; k < heads) {
      float z = 0.0F;
      for (int j = 0; j < g; ++j)
        z = fmaf(to_float(x[j]), to_float(weight[k * g + j]), z);
      gate = 3.0F * sigmoid(z);
      gates[row * heads + k] = gate;
    }
    const int end = min(first_head + 32, heads) * h;
#pragma unroll 4
    for (int first = first_head * h; first < end; first += 32 * N) {
      const int i = first + lane * N;
      const float factor = __shfl_sync(kAllLanes, gate, min(i, end - 1) / h - first_head);
      if (i < end) store(v + i, add_scaled(factor, load<N>(table + i), load<N>(v + i)));
    }
  }
}

void value_embedding(NativeStream stream, const ValueEmbeddingArgs& args) {
  const std::int64_t n = args.x.shape[0], heads = args.weight.shape[0];
  const std::int64_t h = args.table.shape[1] / heads;
  dispatch_packs(args.x.dtype, h, {args.v.data, args.table.data}, [&]<class T, int N>() {
    launch_rows(value_embedding_kernel<T, N>, stream, n, args.v.as<T>(), args.gates.as<float>(),
                args.x.as<T>(), args.weight.as<T>(), args.table.as<T>(),
                args.tokens.as<std::int32_t>(), n, args.table.shape[0], args.x.shape[1],
                static_cast<int>(heads), static_cast<int>(h),
                static_cast<int>(args.weight.shape[1]));
  });
}

// The loop of the backward kernels: one warp per row, grid-stride. It sums the gradients of weights
// over rows, in fp64 as on the host: each warp sums its rows in shared memory, the block its warps,
// and finish_sums the blocks. A warp has `doubles` doubles of `shared`, the first `count` of which
// are its sums; add(row, sums) adds a row to them.
template <class Add>
__device__ __forceinline__ void sum_rows(double* partials, double* shared, std::int64_t rows,
                                         int count, int doubles, const Add& add) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  double* const sums = shared + warp * doubles;
  for (int e = lane_id(); e < count; e += 32)
    sums[e] = 0.0;
  __syncwarp();
  for (std::int64_t row = std::int64_t{blockIdx.x} * warps + warp; row < rows;
       row += std::int64_t{gridDim.x} * warps)
    add(row, sums);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < count; e += static_cast<int>(blockDim.x)) {
    double total = 0.0;
    for (int w = 0; w < warps; ++w)
      total += shared[w * doubles + e];
    partials[std::int64_t{e} * gridDim.x + blockIdx.x] = total;
  }
}

// Destination of the sums: the first `split` of them go to `first`, the others to `second`.
template <class T>
struct PutSums {
  T* first;
  T* second;
  int split;
  bool accumulate;
  __device__ void operator()(int e, double total) const {
    put_float(e < split ? first + e : second + (e - split), total, accumulate);
  }
};

struct ValueProblem {
  std::int64_t n, vocab, c;
  int heads, h, g;
  const float* gates;
  const std::int32_t* tokens;
  double* partials;
  int doubles_per_warp;
};

// One warp per row, grid-stride. The lanes write the dot products of their packs of dv and of the
// table's row to shared memory, and lane k adds those of head k. Then the gradients of the gates
// are added to the first g channels of dx and to the warp's sums for dweight. Reads dv and a row of
// the table: 2 sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads, 8)
    value_embedding_backward_kernel(T* __restrict__ dx, const T* __restrict__ dv,
                                    const T* __restrict__ x, const T* __restrict__ weight,
                                    const T* __restrict__ table, const ValueProblem p) {
  const int lane = lane_id();
  const int packs_per_head = p.h / N;
  const int packs = p.heads * packs_per_head;
  std::int64_t wrong = -1;                                       // row of an invalid token, if any
  const auto add = [&](std::int64_t row, double* sums) {         // (heads, g)
    float* dz = reinterpret_cast<float*>(sums + p.heads * p.g);  // (heads)
    float* dots = dz + p.heads;                                  // (packs)
    std::int32_t token = p.tokens[row];
    if (token < 0 || token >= p.vocab) {
      wrong = row;
      token = 0;
    }
    const T* entry = table + std::int64_t{token} * p.heads * p.h;
    const T* gradient = dv + row * p.heads * p.h;
#pragma unroll 2
    for (int q = lane; q < packs; q += 32)
      dots[q] = dot(load<N>(gradient + q * N), load<N>(entry + q * N), 0.0F);
    __syncwarp();
    for (int k = lane; k < p.heads; k += 32) {
      float dgate = 0.0F;
      for (int q = 0; q < packs_per_head; ++q)
        dgate += dots[k * packs_per_head + q];
      const float gate = p.gates[row * p.heads + k];
      dz[k] = dgate * gate * fmaf(gate, -1.0F / 3.0F, 1.0F);
    }
    __syncwarp();
    for (int j = lane; j < p.g; j += 32) {
      const std::int64_t at = row * p.c + j;
      const double input = to_float(x[at]);
      float sum = 0.0F;
      for (int k = 0; k < p.heads; ++k) {
        sum = fmaf(dz[k], to_float(weight[k * p.g + j]), sum);
        sums[k * p.g + j] += static_cast<double>(dz[k]) * input;
      }
      dx[at] = from_float<T>(to_float(dx[at]) + sum);
    }
  };
  sum_rows(p.partials, shared_memory<double>(), p.n, p.heads * p.g, p.doubles_per_warp, add);
  if (wrong >= 0 && lane == 0)
    stop_at_index("embedding: token", p.tokens[wrong], wrong, 0, p.vocab);
}

// Launch configuration of a backward kernel that needs `sums` sums and `floats` floats per warp.
struct BackwardLaunch {
  unsigned blocks, threads;
  int doubles_per_warp;
  std::size_t bytes;

  template <class Kernel>
  BackwardLaunch(Kernel* kernel, std::int64_t rows, std::int64_t sums, std::int64_t floats) {
    const std::int64_t per_warp = sums + ceil_div(floats, 2);
    const auto size = static_cast<std::int64_t>(sizeof(double));
    const std::int64_t fit = max_shared_bytes(kernel) / (per_warp * size);
    MUO_CHECK(fit > 0, "gates with ", sums, " weights and ", floats,
              " more values exceed the shared memory of a block");
    const std::int64_t warps = std::min<std::int64_t>(kRowsOfBlock, fit);
    blocks = blocks_for(rows, warps, std::min(kManyBlocks, kMaxPartials / sums));
    threads = static_cast<unsigned>(32 * warps);
    doubles_per_warp = static_cast<int>(per_warp);
    bytes = static_cast<std::size_t>(warps * per_warp * size);
  }
};

void value_embedding_backward(NativeStream stream, const ValueEmbeddingBackwardArgs& args) {
  const std::int64_t n = args.x.shape[0], heads = args.weight.shape[0];
  const std::int64_t h = args.table.shape[1] / heads;
  const std::int64_t sums = args.weight.numel();
  if (sums == 0) return;
  dispatch_packs(args.x.dtype, h, {args.dv.data, args.table.data}, [&]<class T, int N>() {
    const auto kernel = value_embedding_backward_kernel<T, N>;
    const BackwardLaunch shape(kernel, n, sums, heads + heads * (h / N));
    const ValueProblem p{.n = n,
                         .vocab = args.table.shape[0],
                         .c = args.x.shape[1],
                         .heads = static_cast<int>(heads),
                         .h = static_cast<int>(h),
                         .g = static_cast<int>(args.weight.shape[1]),
                         .gates = args.gates.as<float>(),
                         .tokens = args.tokens.as<std::int32_t>(),
                         .partials = context_of(stream).partials,
                         .doubles_per_warp = shape.doubles_per_warp};
    launch(kernel, shape.blocks, shape.threads, shape.bytes, stream, args.dx.as<T>(),
           args.dv.as<T>(), args.x.as<T>(), args.weight.as<T>(), args.table.as<T>(), p);
    dispatch(args.dweight.dtype, [&]<class W>() {
      finish_sums(stream, shape.blocks, static_cast<int>(sums),
                  PutSums<W>{args.dweight.as<W>(), nullptr, p.heads * p.g, args.accumulate});
    });
  });
}

// One warp per row, which computes a gate of g channels, then reads the row, and the previous row
// from L2: 2 sizeof(T) bytes per element from memory, bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    smear_kernel(T* __restrict__ y, float* __restrict__ gates, const T* __restrict__ x,
                 const float* __restrict__ weight, const float* __restrict__ lambda,
                 const T* __restrict__ previous, const std::int32_t* __restrict__ positions,
                 const std::int32_t* __restrict__ starts, std::int64_t rows, std::int64_t steps,
                 std::int64_t c, int g) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  const int lane = lane_id();
  const bool at_front = row % steps == 0;
  const std::int64_t position =
      row % steps + (previous == nullptr ? 0 : std::int64_t{positions[row / steps]});
  const bool first = position == (starts == nullptr ? 0 : std::int64_t{starts[row]}) ||
                     (at_front && previous == nullptr);
  x += row * c;
  y += row * c;
  float z = 0.0F;
  for (int j = lane; j < g; j += 32)
    z = fmaf(to_float(x[j]), weight[j], z);
  z = warp_sum(z);
  const float gate = first ? 0.0F : sigmoid(z);
  if (lane == 0) gates[row] = gate;
  const T* before = first ? x : at_front ? previous + row / steps * c : x - c;
  const float factor = *lambda * gate;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{lane} * N; i < c; i += kWarp * N)
    store(y + i, add_scaled(factor, load<N>(before + i), load<N>(x + i)));
}

void smear(NativeStream stream, const SmearArgs& args) {
  const std::int64_t steps = args.x.shape[1], rows = args.x.shape[0] * steps, c = args.x.shape[2];
  dispatch_packs(
      args.x.dtype, c, {args.y.data, args.x.data, args.previous.data}, [&]<class T, int N>() {
        launch_rows(smear_kernel<T, N>, stream, rows, args.y.as<T>(), args.gates.as<float>(),
                    args.x.as<T>(), args.weight.as<float>(), args.lambda.as<float>(),
                    data_or_null<T>(args.previous), data_or_null<std::int32_t>(args.positions),
                    data_or_null<std::int32_t>(args.starts), rows, steps, c,
                    static_cast<int>(args.weight.shape[1]));
      });
}

struct SmearProblem {
  std::int64_t rows, steps, c;
  int g;
  const float* gates;
  const float* weight;
  const float* lambda;
  double* partials;
};

// One warp per row, grid-stride. Reads dy and x, writes dx; the next row's dy is read from L2: 3
// sizeof(T) bytes per element, bound by bandwidth. The gradient of the gate is added to the
// first g channels of dx after they have been stored, as on the host; in bf16, they are
// therefore rounded twice.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    smear_backward_kernel(T* dx, const T* __restrict__ dy, const T* __restrict__ x,
                          const SmearProblem p) {
  const float lambda = *p.lambda;
  const auto add = [&](std::int64_t row, double* sums) {  // sums of dweight, then of dlambda
    const int lane = lane_id();
    const std::int64_t position = row % p.steps;
    const bool last = position + 1 == p.steps;
    const T* gradient = dy + row * p.c;
    const T* after = last ? gradient : gradient + p.c;
    const T* before = position == 0 ? x : x + (row - 1) * p.c;
    T* out = dx + row * p.c;
    const float factor = last ? 0.0F : lambda * p.gates[row + 1];
    float dgate = 0.0F;  // gradient of lambda * gate
#pragma unroll 2
    for (std::int64_t i = std::int64_t{lane} * N; i < p.c; i += kWarp * N) {
      const Pack<N> own = load<N>(gradient + i);
      const Pack<N> next = load<N>(after + i);
      dgate = dot(own, load<N>(before + i), dgate);
      store(out + i, add_scaled(factor, next, own));
    }
    if (position == 0) return;
    dgate = warp_sum(dgate);
    __syncwarp();  // other lanes stored the channels that are read below
    const float gate = p.gates[row];
    const float dz = dgate * lambda * gate * (1.0F - gate);
    for (int j = lane; j < p.g; j += 32) {
      sums[j] += static_cast<double>(dz) * static_cast<double>(to_float(x[row * p.c + j]));
      out[j] = from_float<T>(fmaf(dz, p.weight[j], to_float(out[j])));
    }
    if (lane == 0) sums[p.g] += static_cast<double>(gate) * static_cast<double>(dgate);
  };
  sum_rows(p.partials, shared_memory<double>(), p.rows, p.g + 1, p.g + 1, add);
}

void smear_backward(NativeStream stream, const SmearBackwardArgs& args) {
  const std::int64_t steps = args.x.shape[1], c = args.x.shape[2], g = args.weight.shape[1];
  const SmearProblem p{.rows = args.x.shape[0] * steps,
                       .steps = steps,
                       .c = c,
                       .g = static_cast<int>(g),
                       .gates = args.gates.as<float>(),
                       .weight = args.weight.as<float>(),
                       .lambda = args.lambda.as<float>(),
                       .partials = context_of(stream).partials};
  dispatch_packs(args.x.dtype, c, {args.dx.data, args.dy.data, args.x.data}, [&]<class T, int N>() {
    const auto kernel = smear_backward_kernel<T, N>;
    const BackwardLaunch shape(kernel, p.rows, g + 1, 0);
    launch(kernel, shape.blocks, shape.threads, shape.bytes, stream, args.dx.as<T>(),
           args.dy.as<T>(), args.x.as<T>(), p);
    finish_sums(
        stream, shape.blocks, p.g + 1,
        PutSums<float>{args.dweight.as<float>(), args.dlambda.as<float>(), p.g, args.accumulate});
  });
}

const KernelRegistration registration(&value_embedding, &value_embedding_backward, &smear,
                                      &smear_backward);

}  // namespace
}  // namespace muo::cuda
