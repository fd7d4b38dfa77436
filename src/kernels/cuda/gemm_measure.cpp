#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/dispatch.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/own_stream.h"

namespace muo::cuda {
namespace {

constexpr int kRounds = 5;

DeviceMemory device_memory(std::int64_t bytes) {
  void* p = nullptr;
  MUO_CUDA_CHECK(cudaMalloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))),
                 "to measure GEMM algorithms, ", bytes,
                 " bytes; leave more memory free, or use a recorded table");
  return DeviceMemory(p);
}

struct DestroyEvent {
  void operator()(cudaEvent_t e) const { static_cast<void>(cudaEventDestroy(e)); }
};
using OwnEvent = std::unique_ptr<CUevent_st, DestroyEvent>;

OwnEvent make_event() {
  cudaEvent_t event = nullptr;
  MUO_CUDA_CHECK(cudaEventCreate(&event));
  return OwnEvent(event);
}

// Random elements in [-0.5, 0.5), as repetitions of one block. They are not zeros, because the
// power that a product draws, and with it the clock, depends on the bits of its operands.
DeviceMemory random_operand(std::int64_t count, DType dtype, cudaStream_t stream) {
  const std::int64_t block = std::min<std::int64_t>(count, std::int64_t{1} << 16);
  std::vector<std::byte> host(static_cast<std::size_t>(block * size_of(dtype)));
  const CounterRandom random(0, "gemm");
  dispatch(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < block; ++i) {
      const T value = from_f32<T>(random.uniform(static_cast<std::uint64_t>(i)) - 0.5F);
      std::memcpy(host.data() + i * size_of(dtype), &value, sizeof(value));
    }
  });
  const std::size_t bytes = static_cast<std::size_t>(count * size_of(dtype));
  DeviceMemory memory = device_memory(count * size_of(dtype));
  auto* device = static_cast<std::byte*>(memory.get());
  MUO_CUDA_CHECK(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream));
  for (std::size_t done = host.size(); done < bytes; done += std::min(done, bytes - done))
    MUO_CUDA_CHECK(cudaMemcpyAsync(device + done, device, std::min(done, bytes - done),
                                   cudaMemcpyDeviceToDevice, stream));
  MUO_CUDA_CHECK(cudaStreamSynchronize(stream));  // before `host` is destroyed
  return memory;
}

}  // namespace

GemmMeasurement fastest(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& p,
                        std::span<const cublasLtMatmulAlgo_t> algorithms) {
  MUO_CHECK(!algorithms.empty());
  const OwnStream stream = make_own_stream();
  const OwnEvent begin = make_event();
  const OwnEvent end = make_event();
  const ColumnMajorProblem extents = column_major(p);
  const DeviceMemory a = random_operand(p.batch * extents.second.stride, p.in, stream.get());
  const DeviceMemory b = random_operand(p.batch * extents.first.stride, p.in, stream.get());
  const DeviceMemory d = random_operand(p.batch * extents.result.stride, p.out, stream.get());
  const DeviceMemory c = p.addend == GemmProblem::Addend::kSeparate
                             ? random_operand(p.batch * extents.result.stride, p.out, stream.get())
                             : DeviceMemory{};
  const DeviceMemory workspace = device_memory(p.workspace);
  const GemmOperands operands{.a = a.get(),
                              .b = b.get(),
                              .c = c ? c.get() : d.get(),
                              .d = d.get(),
                              .alpha = 1.0F,
                              .beta = p.addend == GemmProblem::Addend::kNone ? 0.0F : 1.0F};
  const auto time_ms = [&](const cublasLtMatmulAlgo_t& algorithm, int repeats) {
    plan.algorithm = algorithm;
    MUO_CUDA_CHECK(cudaEventRecord(begin.get(), stream.get()));
    for (int i = 0; i < repeats; ++i)
      run_plan(handle, plan, p, operands, workspace.get(), stream.get());
    MUO_CUDA_CHECK(cudaEventRecord(end.get(), stream.get()));
    MUO_CUDA_CHECK(cudaEventSynchronize(end.get()));
    float ms = 0.0F;
    MUO_CUDA_CHECK(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return ms;
  };
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms)
    time_ms(algorithm, 1);  // loads its kernel
  const int repeats = measuring_repeats(time_ms(algorithms.front(), 1));
  // In rounds over all algorithms, so that changes of the clock affect all of them; takes the
  // best time of each.
  std::vector<float> best(algorithms.size(), std::numeric_limits<float>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < algorithms.size(); ++i)
      best[i] = std::min(best[i], time_ms(algorithms[i], repeats));
  const auto winner = std::min_element(best.begin(), best.end());
  return {algorithms[static_cast<std::size_t>(winner - best.begin())],
          double{*winner} * 1e3 / repeats};
}

}  // namespace muo::cuda
