#include "trainer/run/device_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <memory>
#include <vector>

#include "base/terminal.h"
#include "base/threads.h"
#include "kernels/gemm.h"

namespace muo::trainer {
namespace {

constexpr int kRounds = 9;  // minimum; the first warms up caches, pages and clocks

// Fills with non-zero numbers, because some chips draw less power for zeros.
template <class Value>
void fill(Stream& stream, Tensor tensor) {
  std::vector<Value> values(static_cast<std::size_t>(tensor.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = from_f32<Value>(1.0F + static_cast<float>(i % 251) / 251.0F);
  stream.copy(tensor, host_tensor(values.data(), tensor.shape));
  stream.synchronize();
}

// CPU time of the rank's thread on the host, which does the work itself; wall-clock time on a GPU.
double seconds_of(const RankContext& rank) {
  return rank.compute.is_host() ? thread_seconds() : steady_seconds();
}

// Allocates a rank's tensors.
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

// Seconds of the slowest device in the best round. Runs as many rounds as fit into `at_least`
// seconds, but at least kRounds. prepare(rank, memory) returns the work of a round.
template <class Prepare>
double best_round(const GroupOptions& options, double at_least, const Prepare& prepare) {
  std::vector<double> seconds(static_cast<std::size_t>(options.world));
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  bool more = true;
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    Memory memory(rank);
    const auto work = prepare(rank, memory);
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

struct Row {
  std::string_view words;  // all of these must occur in the name
  double flops;
};
// The first matching row counts, so variants precede the models whose names they extend.
constexpr std::array kRows = {
    Row{"gb200", 2.5e15},      Row{"b200", 2.25e15},     Row{"b100", 1.8e15},
    Row{"h200 nvl", 836e12},   Row{"h200 pcie", 836e12}, Row{"h200", 989e12},
    Row{"h100 nvl", 835e12},   Row{"h100 pcie", 756e12}, Row{"h100", 989e12},
    Row{"h800 nvl", 989e12},   Row{"h800", 756e12},      Row{"a100", 312e12},
    Row{"a800", 312e12},       Row{"a40", 149.7e12},     Row{"a30", 165e12},
    Row{"l40s", 362e12},       Row{"l4", 121e12},        Row{"rtx 5090", 209.5e12},
    Row{"rtx 4090", 165.2e12}, Row{"rtx 3090", 71e12},
};
// Words in the names of GPUs that are slower or faster than the model with the rest of the name.
constexpr std::array<std::string_view, 6> kOthers = {"ti", "d", "laptop", "mobile", "max", "mig"};

}  // namespace

int devices_at_once(const GroupOptions& options) {
  return options.plugin == nullptr ? std::min(options.world, usable_cores()) : options.world;
}

double measure_gemm_rate(const GroupOptions& options, DType dtype, std::int64_t size,
                         double at_least) {
  const double seconds = best_round(options, at_least, [=](RankContext& rank, Memory& memory) {
    const auto matrix = [&] { return memory.tensor({size, size}, dtype); };
    const GemmArgs args{.d = matrix(), .a = matrix(), .b = matrix()};
    for (const Tensor& factor : {args.a, args.b})
      dtype == DType::kBF16 ? fill<BF16>(rank.compute, factor) : fill<float>(rank.compute, factor);
    return [&rank, args] { gemm(rank.compute, args); };
  });
  const auto n = static_cast<double>(size);
  return 2.0 * n * n * n * devices_at_once(options) / seconds;
}

double measure_copy_rate(const GroupOptions& options, double at_least) {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  const double seconds = best_round(options, at_least, [=](RankContext& rank, Memory& memory) {
    const Tensor to = memory.tensor({kBytes}, DType::kBytes);
    const Tensor from = memory.tensor({kBytes}, DType::kBytes);
    rank.compute.zero(from);  // pages of fresh memory may all map to one
    return [&rank, to, from] { rank.compute.copy(to, from); };
  });
  return 2.0 * static_cast<double>(kBytes) * devices_at_once(options) / seconds;
}

std::string flops_text(double flops_per_second) {
  return flops_per_second < 1e13 ? fmt::format("{:.0f} GFLOP/s", flops_per_second * 1e-9)
                                 : fmt::format("{:.0f} TFLOP/s", flops_per_second * 1e-12);
}

DevicePeak peak_of(const RunConfig& config, double seconds) {
  const GroupOptions& group = config.group;
  if (group.plugin == nullptr) {
    const double flops = measure_gemm_rate(group.alone(), config.model.dtype, kRateSize, seconds) *
                         group.world / group.local().count;
    return {flops, fmt::format("{} in {} matrix products, all devices together, measured now",
                               flops_text(flops), name_of(config.model.dtype))};
  }
  DevicePeak peak;
  for (int i = 0; i < group.devices_here(); ++i) {
    const std::string name = group.plugin->name(i);
    const std::optional<double> flops = gpu_peak_flops(name);
    if (!flops) return {0, fmt::format("unknown for {}", name)};
    peak.flops += *flops;
  }
  peak.text = fmt::format("{} in bf16 by their maker, all GPUs together", flops_text(peak.flops));
  return peak;
}

ExpectedTime expected_time(const RunConfig& config, const DevicePeak& peak) {
  constexpr double kUtilisation = 0.4, kLong = 600;
  const std::optional<Duration>& budget = config.options.batch.time_budget;
  const double left = budget ? budget->seconds - config.trained.clock.spent : 0;
  const ExpectedTime by_budget = {left, fmt::format("{} of training", duration_text(left))};
  if (budget && !config.is_bounded()) return by_budget;
  if (peak.flops <= 0) return {};
  ExpectedTime time;
  time.seconds = config.flops_per_token * config.tokens_left() / peak.flops / kUtilisation;
  if (budget && left < time.seconds) return by_budget;
  time.text = fmt::format("about {}, at {:.0f} % of the peak",
                          duration_text(std::max(time.seconds, 1.0)), 100 * kUtilisation);
  if (time.seconds > kLong && config.options.run.sizes == CpuSizes::kLaws)
    time.text += ": sizes follow nanochat's laws; --config quick.toml has sizes for a CPU";
  return time;
}

std::vector<std::string> gpu_name_words(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      words.back() += static_cast<char>(std::tolower(byte));
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

std::optional<double> gpu_peak_flops(std::string_view device_name) {
  const std::vector<std::string> name = gpu_name_words(device_name);
  const auto has = [&](std::string_view word) {
    return std::ranges::find(name, word) != name.end();
  };
  if (std::ranges::any_of(kOthers, has)) return std::nullopt;
  for (const Row& row : kRows)
    if (std::ranges::all_of(gpu_name_words(row.words), has)) return row.flops;
  return std::nullopt;
}

}  // namespace muo::trainer
