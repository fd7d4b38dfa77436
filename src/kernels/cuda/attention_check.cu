#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/fill.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/sums.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/own_stream.h"
#include "runtime/cuda/relaxed_capture.h"
#include "runtime/device.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPart = 1024;  // consecutive elements that are compared together

// Bounds the root mean square of the difference over a part: `relative` times the root mean square
// of the values, plus `absolute`.
struct Tolerance {
  float relative, absolute;
};
// Probabilities, gradients of scores and results are rounded to bf16, each independently and with a
// relative error of at most 2^-9. Two implementations then differ by 0.0032 in the worst part of
// rows of 2,048, while one key more or less in a window of n keys makes a difference of sqrt(1/n).
// Gradients that cancel, e.g. because a query sees only itself, consist of the rounding errors of
// fp32 sums of values below 1.
constexpr Tolerance kOfBF16{.relative = 0x1p-6F, .absolute = 0x1p-20F};
// Bounds the error of a score; one key more or less among n makes a difference of 1/n.
constexpr Tolerance kOfLse{.relative = 0.0F, .absolute = 0x1p-12F};

// Adds to *mismatches the number of parts in which x and y differ by more than `tolerance`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    compare_kernel(const T* x, const T* y, std::int64_t n, Tolerance tolerance,
                   std::uint32_t* mismatches) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kPart;
  const std::int64_t end = blockIdx.x + 1 == gridDim.x ? n : first + kPart;
  float distance = 0.0F;
  float square = 0.0F;
  for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    const float off = to_float(x[i]) - to_float(y[i]);
    distance = fmaf(off, off, distance);
    square = fmaf(to_float(y[i]), to_float(y[i]), square);
  }
  distance = block_sum(distance);
  square = block_sum(square);
  const float allowed = tolerance.relative * tolerance.relative * square +
                        tolerance.absolute * tolerance.absolute * static_cast<float>(end - first);
  if (threadIdx.x == 0 && !(distance <= allowed)) atomicAdd(mismatches, 1U);
}

// A stream context for a temporary stream, registered so that cudnn_attention finds it.
class Context {
 public:
  explicit Context(NativeStream stream) : stream_(stream) {
    int device = 0;
    MUO_CUDA_CHECK(cudaGetDevice(&device));
    add_stream_context(stream, {.device = device});
  }
  ~Context() {
    static_cast<void>(cudaStreamSynchronize(stream_));  // pending work uses memory to be freed
    remove_stream_context(stream_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  NativeStream stream_;
};

// Allocates `bytes`; returns null if there is not enough free memory.
DeviceMemory memory_of(std::int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (error != cudaErrorMemoryAllocation) MUO_CUDA_CHECK(error);
  return DeviceMemory(data);
}

// Lays out tensors one after the other. With a null `begin` it only counts their bytes.
class Layout {
 public:
  explicit Layout(void* begin) : begin_(static_cast<std::byte*>(begin)) {}
  Tensor take(const Shape& shape, DType dtype = DType::kBF16) {
    const Tensor out{
        .data = begin_ == nullptr ? nullptr : begin_ + bytes_, .shape = shape, .dtype = dtype};
    bytes_ += ceil_div(out.bytes(), kAlignment) * kAlignment;
    return out;
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  std::int64_t bytes_ = 0;
};

// The same call for the project's kernels and for cuDNN's, with different outputs.
struct Calls {
  Tensor mismatches;
  AttentionArgs own, cudnn;
  AttentionBackwardArgs own_gradients, cudnn_gradients;

  Calls(const AttentionSize& s, AttentionDirection direction, std::int64_t scratch,
        Layout& layout) {
    const Shape queries{s.b, s.t, s.heads, s.h};
    const Shape keys{s.b, s.t, s.kv_heads, s.h};
    mismatches = layout.take({1}, DType::kI32);
    own = {.out = layout.take(queries),
           .lse = layout.take({s.b, s.heads, s.t}, DType::kF32),
           .q = layout.take(queries),
           .k = layout.take(keys),
           .v = layout.take(keys),
           .workspace =
               layout.take({std::max(s.b * s.t * s.heads, ceil_div(scratch, 4))}, DType::kF32),
           .window = s.window,
           .scale = s.scale,
           .method = s.method};
    if (direction == AttentionDirection::kForward) {
      cudnn = own;
      cudnn.out = layout.take(queries);
      cudnn.lse = layout.take(own.lse.shape, DType::kF32);
      return;
    }
    own_gradients = {.dq = layout.take(queries),
                     .dk = layout.take(keys),
                     .dv = layout.take(keys),
                     .dout = layout.take(queries),
                     .out = own.out,
                     .lse = own.lse,
                     .q = own.q,
                     .k = own.k,
                     .v = own.v,
                     .workspace = own.workspace,
                     .window = s.window,
                     .scale = s.scale,
                     .method = s.method};
    cudnn_gradients = own_gradients;
    cudnn_gradients.dq = layout.take(queries);
    cudnn_gradients.dk = layout.take(keys);
    cudnn_gradients.dv = layout.take(keys);
  }
};

// Reduces the number of rows, then their length, so that a comparison takes no more than some
// tenths of a second.
AttentionSize affordable(AttentionSize size) {
  const auto flops = [&] {
    return 4 * size.b * size.heads * size.h * size.t * (std::min(size.t - 1, size.window) + 1);
  };
  while (flops() > std::int64_t{1} << 40 && size.b > 1)
    size.b = ceil_div(size.b, 2);
  while (flops() > std::int64_t{1} << 40)
    size.t = ceil_div(size.t, 2);
  return size;
}

std::string compare(const AttentionSize& asked, AttentionDirection direction) {
  const bool backward = direction == AttentionDirection::kBackward;
  const AttentionSize size = affordable(asked);
  const LibraryAttention library =
      cudnn_attention_support(problem_of(size), direction, size.method.deterministic);
  if (!library.why_not.empty()) return library.why_not;

  Layout counted(nullptr);
  static_cast<void>(Calls(size, direction, library.workspace, counted));
  const DeviceMemory memory = memory_of(counted.bytes());
  if (!memory) {
    std::fprintf(stderr,
                 "cuDNN's attention is not checked against the portable kernels: %lld bytes of GPU "
                 "memory are needed, but not free\n",
                 static_cast<long long>(counted.bytes()));
    return {};
  }
  const OwnStream own = make_own_stream();
  const NativeStream stream = own.get();
  const Context context(stream);
  MUO_CUDA_CHECK(  // results that a kernel does not write remain NaN
      cudaMemsetAsync(memory.get(), 0xFF, static_cast<std::size_t>(counted.bytes()), stream));
  Layout there(memory.get());
  const Calls calls(size, direction, library.workspace, there);
  const auto values = [&](const Tensor& x, std::uint32_t seed, float step = 1.0F / 256.0F) {
    fill(stream, x.as<BF16>(), x.numel(), seed, step);
  };
  // Scales q such that scores have a standard deviation of 1; elements of k have 1 / sqrt(12).
  const float spread = std::fabs(size.scale) * std::sqrt(static_cast<float>(size.h)) / 12.0F;
  values(calls.own.q, 1, (spread > 0.0F ? 1.0F / spread : 1.0F) / 256.0F);
  values(calls.own.k, 2);
  values(calls.own.v, 3);
  MUO_CUDA_CHECK(cudaMemsetAsync(calls.mismatches.data, 0, sizeof(std::uint32_t), stream));
  std::int64_t parts = 0;
  const auto count = [&](const Tensor& x, const Tensor& y, Tolerance tolerance) {
    const std::int64_t blocks = std::max<std::int64_t>(1, x.numel() / kPart);
    dispatch(x.dtype, [&]<class T>() {
      launch(compare_kernel<T>, static_cast<unsigned>(blocks), kThreads, 0, stream,
             static_cast<const T*>(x.as<T>()), static_cast<const T*>(y.as<T>()), x.numel(),
             tolerance, reinterpret_cast<std::uint32_t*>(calls.mismatches.data));
    });
    parts += blocks;
  };
  portable_attention(stream, calls.own);
  if (backward) {
    const AttentionBackwardArgs &x = calls.cudnn_gradients, &y = calls.own_gradients;
    values(y.dout, 4);
    portable_attention_backward(stream, y);
    cudnn_attention_backward(stream, x);
    count(x.dq, y.dq, kOfBF16);
    count(x.dk, y.dk, kOfBF16);
    count(x.dv, y.dv, kOfBF16);
  } else {
    cudnn_attention(stream, calls.cudnn);
    count(calls.cudnn.out, calls.own.out, kOfBF16);
    count(calls.cudnn.lse, calls.own.lse, kOfLse);
  }
  std::uint32_t mismatches = 0;
  MUO_CUDA_CHECK(cudaMemcpyAsync(&mismatches, calls.mismatches.data, sizeof(mismatches),
                                 cudaMemcpyDeviceToHost, stream));
  MUO_CUDA_CHECK(cudaStreamSynchronize(stream));
  return mismatches == 0
             ? ""
             : concat("cuDNN's ", backward && size.method.deterministic ? "deterministic " : "",
                      "attention", backward ? " gradient" : "",
                      " differs from the portable kernels' in ", mismatches, " of ", parts,
                      " parts");
}

}  // namespace

std::string cudnn_attention_is_wrong(const AttentionSize& size, AttentionDirection direction) {
  static std::mutex mutex;
  static std::map<std::tuple<AttentionProblem, AttentionDirection, bool>, std::string> known;
  const bool any_order = direction == AttentionDirection::kBackward && !size.method.deterministic;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({problem_of(size), direction, any_order});
  if (is_new) {
    try {
      const RelaxedCapture relaxed;
      found->second = compare(size, direction);
    } catch (const Error& error) {
      found->second = error.what();
    }
    if (!found->second.empty())
      std::fprintf(stderr, "attention, window %lld: cuDNN is not used: %s\n",
                   static_cast<long long>(size.window), found->second.c_str());
  }
  return found->second;
}

}  // namespace muo::cuda
