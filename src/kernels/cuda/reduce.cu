#include "kernels/cuda/index_check.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/reduce.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

// Grid-stride, in fp64: sizeof(T) bytes per element, bound by bandwidth or, on GPUs with few fp64
// units, by the fp64 addition per element. Block 0 adds the elements that fill no vector.
template <class T, int N, bool kSquares>
__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(const T* x, std::int64_t count, double* partials) {
  const std::int64_t packs = count / N;
  const std::int64_t stride = std::int64_t{gridDim.x} * kSumThreads;
  double sum = 0.0;
  const auto add = [&sum](float value) {
    const double v{value};
    sum += kSquares ? v * v : v;
  };
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < packs;
       i += stride) {
    const Pack<N> values = load<N>(x + i * N);
#pragma unroll
    for (const float v : values.v)
      add(v);
  }
  if constexpr (N > 1)
    if (const std::int64_t i = packs * N + threadIdx.x; blockIdx.x == 0 && i < count)
      add(to_float(x[i]));
  write_partial(partials, gridDim.x, 0, sum);
}

struct PutSum {
  double* out;
  const float* scale;  // null: 1
  bool accumulate;

  __device__ void operator()(int /*sum*/, double total) const {
    if (scale != nullptr) total *= double{*scale};
    *out = accumulate ? *out + total : total;
  }
};

// bf16 is also read four elements (8 bytes) at a time, so that sums have the same order as for
// fp32.
template <class T, bool kSquares>
void sum_of(NativeStream stream, const Tensor& x, const PutSum& put) {
  const std::int64_t count = x.numel();
  with_width<float>(vector_fits<kWidth<float>>(x.as<T>()), [&]<int N>() {
    const unsigned blocks = blocks_for(count / N, kSumThreads * 4, kManyBlocks);
    launch(sum_kernel<T, N, kSquares>, blocks, kSumThreads, 0, stream, x.as<T>(), count,
           context_of(stream).partials);
    finish_sums(stream, blocks, 1, put);
  });
}

constexpr int kTotals = 4;

// Grid-stride: 8 bytes per position and a look-up in a table that fits into L2.
__global__ void __launch_bounds__(kSumThreads)
    loss_totals_kernel(const float* losses, const std::int32_t* targets, const std::int32_t* bytes,
                       std::int64_t count, std::int64_t vocab, double* partials) {
  double totals[kTotals] = {};
  const std::int64_t stride = std::int64_t{gridDim.x} * kSumThreads;
  for (std::int64_t begin = std::int64_t{blockIdx.x} * kSumThreads; begin < count;
       begin += stride) {
    const std::int64_t i = begin + threadIdx.x;
    const std::int32_t target = i < count ? targets[i] : -1;
    check_index(target < vocab, "loss_totals: target", target, i, -1, vocab);
    if (target < 0) continue;
    const double loss{losses[i]};
    totals[0] += loss;
    totals[1] += 1.0;
    if (const std::int32_t length = bytes[target]; length > 0) {
      totals[2] += loss;
      totals[3] += static_cast<double>(length);
    }
  }
#pragma unroll
  for (int s = 0; s < kTotals; ++s)
    write_partial(partials, gridDim.x, s, totals[s]);
}

struct AddTotals {
  double* out;

  __device__ void operator()(int sum, double total) const { out[sum] += total; }
};

void sum(NativeStream stream, const SumArgs& args) {
  sum_of<float, false>(stream, args.x,
                       {args.out.as<double>(), data_or_null<float>(args.scale), args.accumulate});
}

void sum_squares(NativeStream stream, const SumSquaresArgs& args) {
  dispatch(args.x.dtype, [&]<class T>() {
    sum_of<T, true>(stream, args.x, {args.out.as<double>(), nullptr, args.accumulate});
  });
}

void loss_totals(NativeStream stream, const LossTotalsArgs& args) {
  const std::int64_t count = args.losses.shape[0];
  const unsigned blocks = blocks_for(count, kSumThreads * 4, kManyBlocks);
  launch(loss_totals_kernel, blocks, kSumThreads, 0, stream, args.losses.as<float>(),
         args.targets.as<std::int32_t>(), args.bytes.as<std::int32_t>(), count, args.bytes.shape[0],
         context_of(stream).partials);
  finish_sums(stream, blocks, kTotals, AddTotals{args.out.as<double>()});
}

const KernelRegistration registration(&sum, &sum_squares, &loss_totals);

}  // namespace
}  // namespace muo::cuda
