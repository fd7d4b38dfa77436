#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "base/check.h"
#include "kernels/activation.h"
#include "kernels/cuda/fill.h"
#include "kernels/cuda/fused_kernels.h"
#include "kernels/cuda/relu_squared.h"
#include "kernels/fused_product.h"
#include "kernels/gemm.h"
#include "kernels/operation.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/relaxed_capture.h"
#include "runtime/cuda/stream_context.h"

// Errors in the memory descriptors of a fused kernel show only on a GPU. A kind of product is
// therefore compared with plain sums, element by element, before it is first used in a process.
namespace muo::cuda {
namespace {

constexpr int kThreads = 256;

// Squares x in place, so that it resembles the output of an activation.
__global__ void __launch_bounds__(kThreads) square_kernel(BF16* x, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) x[i] = from_float<BF16>(relu_squared(to_float(x[i])));
}

// Counts the elements of d that differ from a plain sum by more than the order of summation and the
// roundings to bf16 explain.
__global__ void __launch_bounds__(kThreads)
    compare_kernel(const BF16* d, const BF16* a, const BF16* b, const BF16* y, FusedProblem p,
                   float of_sums, std::uint32_t* apart) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.m * p.n) return;
  const std::int64_t row = i / p.n;
  const std::int64_t column = i % p.n;
  float sum = 0.0F;
  for (std::int64_t j = 0; j < p.k; ++j)
    sum = fmaf(to_float(a[row * p.k + j]),
               to_float(p.backward ? b[j * p.n + column] : b[column * p.k + j]), sum);
  const float x = to_float(from_float<BF16>(sum));
  float got = to_float(d[i]);
  float want = 0.0F;
  float allowed = of_sums;
  if (p.backward) {
    const float root = sqrtf(to_float(y[i]));
    want = relu_squared_backward<BF16>(x, root);
    allowed *= 2.0F * root;
  } else {
    want = sqrtf(to_float(from_float<BF16>(relu_squared(x))));
    got = sqrtf(got);
  }
  allowed += fmaxf(fabsf(got), fabsf(want)) / 64.0F;  // a few roundings, each at most 1/256
  if (!(fabsf(got - want) <= allowed)) atomicAdd(apart, 1U);
}

int multiprocessors_of(int device) {
  int count = 0;
  MUO_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return std::max(2, count - reserved_for_collectives(device));
}

// The tensors of the check are in the stream's workspace, because allocating memory now could wait
// for kernels of peers on the GPU.
std::string compare(NativeStream stream, FusedProblem p, const StreamContext& context) {
  constexpr std::int64_t kRows = 4 * 128 + 72;  // whole tiles and a partial one
  p.m = std::min(p.m, kRows);
  auto* next = context.gemm_workspace;
  const auto take = [&](std::int64_t n) {
    auto* out = reinterpret_cast<BF16*>(next);
    next += (2 * n + 255) / 256 * 256;
    return out;
  };
  auto* const apart = reinterpret_cast<std::uint32_t*>(take(2));
  BF16* const a = take(p.m * p.k);
  BF16* const b = take(p.n * p.k);
  BF16* const d = take(p.m * p.n);
  BF16* const y = take(p.m * p.n);
  if (next - context.gemm_workspace > context.gemm_workspace_bytes)
    return "it is too large to be compared with plain sums";
  fill(stream, a, p.m * p.k, 1);
  fill(stream, b, p.n * p.k, 2);
  fill(stream, y, p.m * p.n, 3);
  const unsigned blocks = blocks_for(p.m * p.n, kThreads);
  launch(square_kernel, blocks, kThreads, 0, stream, y, p.m * p.n);
  MUO_CUDA_CHECK(cudaMemsetAsync(apart, 0, sizeof(*apart), stream));
  run_fused(stream, p, {.d = d, .a = a, .b = b, .y = y}, context.device,
            multiprocessors_of(context.device));
  // The error of either sum is at most k unit roundoffs of the sum of magnitudes,
  // which is k / 4 here.
  const auto k = static_cast<float>(p.k);
  const float of_sums = 2.0F * k * (k / 4.0F) * 0x1p-23F;
  launch(compare_kernel, blocks, kThreads, 0, stream, static_cast<const BF16*>(d),
         static_cast<const BF16*>(a), static_cast<const BF16*>(b), static_cast<const BF16*>(y), p,
         of_sums, apart);
  std::uint32_t count = 0;
  MUO_CUDA_CHECK(cudaMemcpyAsync(&count, apart, sizeof(count), cudaMemcpyDeviceToHost, stream));
  MUO_CUDA_CHECK(cudaStreamSynchronize(stream));
  return count == 0 ? "" : concat(count, " of ", p.m * p.n, " results differ from plain sums");
}

// Results of the check for each kind of product, for any number of rows. All ranks use the result
// of the first rank.
class Verdicts {
 public:
  bool usable(NativeStream stream, const FusedProblem& p) {
    const StreamContext& context = context_of(stream);
    const std::lock_guard lock(mutex_);
    const auto key = std::tuple(p.n, p.k, p.backward);
    if (const auto found = usable_.find(key); found != usable_.end()) return found->second;
    if (is_capturing(stream)) return false;  // the check cannot run during a capture
    std::string why = fused_kernels_missing(context.device);
    if (why.empty()) {
      try {
        why = compare(stream, p, context);
      } catch (const Error& error) {
        why = error.what();
      }
      if (!why.empty())
        std::fprintf(stderr, "fused product of ReLU^2, %lld x %lld%s: not used: %s\n",
                     static_cast<long long>(p.n), static_cast<long long>(p.k),
                     p.backward ? " backward" : "", why.c_str());
    }
    return usable_[key] = why.empty();
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, bool> usable_;
};

bool fused(NativeStream stream, const FusedProblem& p, DType dtype, const FusedOperands& of) {
  static Verdicts verdicts;
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  const bool fits = dtype == DType::kBF16 && p.n % 8 == 0 && p.k % 8 == 0 && p.m > 0 && p.n > 0 &&
                    p.k > 0 && p.m <= kMax;
  for (const void* address : {static_cast<const void*>(of.d), of.a, of.b, of.y})
    if (!fits || reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  const RelaxedCapture relaxed;  // the first call of a kernel loads it
  if (!verdicts.usable(stream, p)) return false;
  const int device = context_of(stream).device;
  run_fused(stream, p, of, device, multiprocessors_of(device));
  return true;
}

template <class Args>
void run(NativeStream stream, const Args& args) {
  reinterpret_cast<void (*)(NativeStream, const Args&)>(kernels_of(typeid(Args)).cuda)(stream,
                                                                                       args);
}

void gemm_relu_squared(NativeStream stream, const GemmReluSquaredArgs& args) {
  const FusedProblem p{.m = args.y.shape[0], .n = args.y.shape[1], .k = args.x.shape[1]};
  if (fused(stream, p, args.y.dtype,
            {.d = args.y.data, .a = args.x.data, .b = args.w.data, .y = nullptr}))
    return;
  run(stream, GemmArgs{.d = args.y, .a = args.x, .b = args.w, .transpose_b = true});
  run(stream, ReluSquaredArgs{.y = args.y, .x = args.y});
}

void gemm_relu_squared_backward(NativeStream stream, const GemmReluSquaredBackwardArgs& args) {
  const FusedProblem p{
      .m = args.dx.shape[0], .n = args.dx.shape[1], .k = args.dy.shape[1], .backward = true};
  if (fused(stream, p, args.dx.dtype,
            {.d = args.dx.data, .a = args.dy.data, .b = args.w.data, .y = args.y.data}))
    return;
  run(stream, GemmArgs{.d = args.dx, .a = args.dy, .b = args.w});
  run(stream, ReluSquaredBackwardArgs{.dx = args.dx, .dy = args.dx, .y = args.y});
}

const KernelRegistration registration(&gemm_relu_squared, &gemm_relu_squared_backward);

[[maybe_unused]] const bool registered = [] {
  register_fused_products(&fused_kernels_missing);
  return true;
}();

}  // namespace
}  // namespace muo::cuda
