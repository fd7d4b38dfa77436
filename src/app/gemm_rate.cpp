#include "app/gemm_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "app/backend.h"
#include "base/thread_time.h"
#include "kernels/gemm.h"

namespace muo {
namespace {

constexpr int kRounds = 9;  // the first warms caches, pages and clocks up

// Any numbers but zeros, which some chips multiply with less power.
void fill(Stream& stream, Tensor tensor) {
  const auto n = static_cast<std::size_t>(tensor.numel());
  const auto value = [](std::size_t i) { return 1.0F + static_cast<float>(i % 251) / 251.0F; };
  if (tensor.dtype == DType::kBF16) {
    std::vector<BF16> values(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = to_bf16(value(i));
    stream.copy(tensor, host_tensor(values.data(), tensor.shape));
    stream.synchronize();
  } else {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = value(i);
    stream.copy(tensor, host_tensor(values.data(), tensor.shape));
    stream.synchronize();
  }
}

// A clock of the rank: on the host its thread does the work.
double seconds_of(const RankContext& rank) {
  if (rank.compute.is_host()) return thread_seconds();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double measure_gemm_rate(const GroupOptions& options, DType dtype, std::int64_t size) {
  std::vector<double> seconds(static_cast<std::size_t>(options.world));
  double best_seconds = std::numeric_limits<double>::infinity();
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    std::vector<std::unique_ptr<Buffer>> memory;
    const auto matrix = [&] {
      memory.push_back(rank.device.allocate(size * size * size_of(dtype), "matrix products"));
      return Tensor{.data = memory.back()->data(),
                    .shape = {size, size},
                    .dtype = dtype,
                    .device = rank.rank};
    };
    const GemmArgs args{.d = matrix(), .a = matrix(), .b = matrix(), .transpose_b = true};
    fill(rank.compute, args.a);
    fill(rank.compute, args.b);
    for (int round = 0; round < kRounds; ++round) {
      rank.barrier.arrive({}, "start of a matrix product");
      const double start = seconds_of(rank);
      gemm(rank.compute, args);
      rank.wait(rank.compute);
      seconds.at(static_cast<std::size_t>(rank.rank)) = seconds_of(rank) - start;
      rank.barrier.arrive(
          [&] {
            if (round > 0) best_seconds = std::min(best_seconds, std::ranges::max(seconds));
          },
          "end of a matrix product");
    }
  });
  const int at_once =
      options.plugin == nullptr ? std::min(options.world, usable_cores()) : options.world;
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) *
                       static_cast<double>(size) * at_once;
  return flops / best_seconds;
}

std::string flops_text(double flops_per_second) {
  return flops_per_second < 1e13 ? fmt::format("{:.0f} GFLOP/s", flops_per_second * 1e-9)
                                 : fmt::format("{:.0f} TFLOP/s", flops_per_second * 1e-12);
}

}  // namespace muo
