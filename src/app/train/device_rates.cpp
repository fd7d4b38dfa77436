#include "app/train/gemm_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "app/train/backend.h"
#include "base/cores.h"
#include "base/thread_time.h"
#include "kernels/gemm.h"

namespace muo {
namespace {

constexpr int kRounds = 9;  // at least; the first warms caches, pages and clocks up

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

// Seconds of the slowest device in the best of the rounds that `at_least` seconds hold, or of
// kRounds. prepare(rank) returns the work of one.
template <class Prepare>
double best_round(const GroupOptions& options, double at_least, const Prepare& prepare) {
  std::vector<double> seconds(static_cast<std::size_t>(options.world));
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  bool more = true;
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    const auto work = prepare(rank);
    for (int round = 0; more; ++round) {
      rank.barrier.arrive({}, "start of a round of measuring");
      const double start = seconds_of(rank);
      work();
      rank.wait(rank.compute);
      seconds.at(static_cast<std::size_t>(rank.rank)) = seconds_of(rank) - start;
      rank.barrier.arrive(
          [&] {
            const double slowest = std::ranges::max(seconds);
            if (round > 0) best = std::min(best, slowest);
            spent += slowest;
            more = round + 1 < kRounds || spent < at_least;
          },
          "end of a round of measuring");
    }
  });
  return best;
}

// A rank's tensors.
class Memory {
 public:
  explicit Memory(RankContext& rank) : rank_(rank) {}
  Tensor tensor(const Shape& shape, DType dtype) {
    Tensor out{.shape = shape, .dtype = dtype, .device = rank_.rank};
    buffers_.push_back(rank_.device.allocate(out.bytes(), "measuring"));
    out.data = buffers_.back()->data();
    return out;
  }

 private:
  RankContext& rank_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace

int devices_at_once(const GroupOptions& options) {
  return options.plugin == nullptr ? std::min(options.world, usable_cores()) : options.world;
}

double measure_gemm_rate(const GroupOptions& options, DType dtype, std::int64_t size,
                         double at_least) {
  const double seconds = best_round(options, at_least, [=](RankContext& rank) {
    const auto memory = std::make_shared<Memory>(rank);
    const auto matrix = [&] { return memory->tensor({size, size}, dtype); };
    const GemmArgs args{.d = matrix(), .a = matrix(), .b = matrix()};
    fill(rank.compute, args.a);
    fill(rank.compute, args.b);
    return [&rank, memory, args] { gemm(rank.compute, args); };
  });
  const auto n = static_cast<double>(size);
  return 2.0 * n * n * n * devices_at_once(options) / seconds;
}

double measure_copy_rate(const GroupOptions& options, double at_least) {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  const double seconds = best_round(options, at_least, [=](RankContext& rank) {
    const auto memory = std::make_shared<Memory>(rank);
    const Tensor to = memory->tensor({kBytes}, DType::kBytes);
    const Tensor from = memory->tensor({kBytes}, DType::kBytes);
    rank.compute.zero(from);  // fresh memory may all be one page
    return [&rank, memory, to, from] { rank.compute.copy(to, from); };
  });
  return 2.0 * static_cast<double>(kBytes) * devices_at_once(options) / seconds;
}

std::string flops_text(double flops_per_second) {
  return flops_per_second < 1e13 ? fmt::format("{:.0f} GFLOP/s", flops_per_second * 1e-9)
                                 : fmt::format("{:.0f} TFLOP/s", flops_per_second * 1e-12);
}

}  // namespace muo
