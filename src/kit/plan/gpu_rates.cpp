#include "kit/plan/gpu_rates.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/strict_json.h"
#include "trainer/options/option_row.h"
#include "trainer/run/described_gpu.h"

namespace muo::kit {
namespace {

using R = GpuRates;
using enum RateScale;

constexpr std::string_view kMeasured = "measured on an H100, 2026-11-27: docs/performance.md";
constexpr std::string_view kEstimate = "estimate, from the kernel's instructions";
constexpr std::string_view kFitted =
    "fitted to steps of d12 and d24 on H100s at their power limit: docs/performance.md";
constexpr double kRateClock = 1.9e9;

constexpr std::array kRows = {
    RateRow{"tile_flops", &R::tile_flops, 1027e12, kFlops,
            "4096 FLOPs per clock and multiprocessor, by its data sheet"},
    RateRow{"wave_seconds", &R::wave_seconds, 4.0e-6, kNone, kFitted},
    RateRow{"product_share", &R::product_share, 0.91, kNone,
            "fitted to --tune off, by which a step of d12 takes 2.4 % longer"},
    RateRow{"measured_share", &R::measured_share, 0.98, kNone, kFitted},
    RateRow{"split_bytes", &R::split_bytes, 128 << 20, kNone,
            "the workspace of products on a compute stream"},
    RateRow{"library_forward", &R::library_forward, 520e12, kFlops, kMeasured},
    RateRow{"library_forward_window", &R::library_forward_window, 355e12, kFlops, kMeasured},
    RateRow{"library_backward", &R::library_backward, 348e12, kFlops, kMeasured},
    RateRow{"library_backward_window", &R::library_backward_window, 258e12, kFlops, kMeasured},
    RateRow{"own_forward", &R::own_forward, 300e12, kFlops, kEstimate},
    RateRow{"own_forward_window", &R::own_forward_window, 260e12, kFlops, kEstimate},
    RateRow{"own_backward", &R::own_backward, 175e12, kFlops, kEstimate},
    RateRow{"own_backward_window", &R::own_backward_window, 160e12, kFlops, kEstimate},
    RateRow{"warpgroup_backward", &R::warpgroup_backward, 389e12, kFlops, kMeasured},
    RateRow{"warpgroup_backward_window", &R::warpgroup_backward_window, 298e12, kFlops, kMeasured},
    RateRow{"portable_attention", &R::portable_attention, 20e12, kFlops, kEstimate},
    RateRow{"rotary_in_attention", &R::rotary_in_attention, 0.6, kNone,
            "measured on an H200, 2026-11-28: docs/performance.md"},
    RateRow{"rate_clock", &R::rate_clock, kRateClock, kClock,
            "an H100's in single kernels; of another chip that of its data sheet's FLOP/s"},
    RateRow{"max_clock", &R::max_clock, kRateClock, kClock, "as rate_clock"},
    RateRow{"power_limit", &R::power_limit, 690, kPower,
            "measured: steps take 690 to 698 of an H100's 700 W; of other GPUs as large a share"},
    RateRow{"idle_power", &R::idle_power, 120, kPower, kFitted},
    RateRow{"joules_per_flop", &R::joules_per_flop, 1.28e-12, kChip,
            "fitted to d12 and d24 on warm H100s, 0.94e-12 at 1.5 GHz (a cool one: 1.0e-12, "
            "0.74e-12); an H200 has the same chip, those of other chips are not known"},
    RateRow{"clock_exponent", &R::clock_exponent, 1.3, kNone, kFitted},
    RateRow{"joules_per_byte", &R::joules_per_byte, 55e-12, kNone, kFitted},
    RateRow{"memory_rate", &R::memory_rate, 3.0e12, kMemory,
            "measured by others: copies reach 90% of 3.35 TB/s"},
    RateRow{"streaming_share", &R::streaming_share, 0.96, kNone, kMeasured},
    RateRow{"cross_entropy_share", &R::cross_entropy_share, 0.82, kNone, kMeasured},
    RateRow{"grouping_seconds", &R::grouping_seconds, 32e-6 / 65536, kNone, kMeasured},
    RateRow{"node_seconds", &R::node_seconds, 1.0e-6, kNone, kMeasured},
    RateRow{"link_rate", &R::link_rate, 370e9, kNone,
            "measured by others: NCCL between 8 GPUs by NVLink 4"},
    RateRow{"link_seconds", &R::link_seconds, 20e-6, kNone, "estimate"},
};

GpuRates rates_of(const trainer::DescribedGpu& gpu) {
  const trainer::DescribedGpu& known = trainer::described_gpus().front();
  const bool same_chip = gpu.is_hopper;
  const double clock = same_chip ? kRateClock : gpu.clock;
  GpuRates out{.gpu = std::string(gpu.name),
               .multiprocessors = static_cast<double>(gpu.multiprocessors),
               .peak_flops = gpu.flops,
               .fp32_flops = gpu.fp32_flops};
  const auto factor = [&](RateScale scale) {
    switch (scale) {
      case kNone:
        break;
      case kFlops:
        return gpu.flops / gpu.clock * clock / (known.flops / known.clock * kRateClock);
      case kMemory:
        return gpu.memory_rate / known.memory_rate;
      case kPower:
        return gpu.power / known.power;
      case kClock:
        return clock / kRateClock;
      case kChip:
        return same_chip ? 1.0 : 0.0;
    }
    return 1.0;
  };
  for (const RateRow& row : kRows)
    out.*row.field = row.value * factor(row.scale);
  return out;
}

}  // namespace

std::span<const RateRow> rate_rows() { return kRows; }

GpuRates gpu_rates(const std::string& name_or_file) {
  const std::string_view known = trainer::described_gpu_name(name_or_file);
  for (const trainer::DescribedGpu& gpu : trainer::described_gpus())
    if (gpu.name == known) return rates_of(gpu);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name_or_file, ignored))
    throw trainer::input_error("--roofline {}: neither a file nor a known GPU: give one of {}",
                               name_or_file, trainer::described_gpu_names());
  const auto file = try_strict_json(FileBytes(name_or_file).text());
  if (!file.is_object())
    throw trainer::input_error("--roofline {}: not a JSON object", name_or_file);
  const auto gpu = file.find("gpu");
  const std::string given = gpu == file.end()  ? ""
                            : gpu->is_string() ? gpu->get<std::string>()
                                               : gpu->dump();
  const auto described = std::ranges::find(
      trainer::described_gpus(), trainer::described_gpu_name(given), &trainer::DescribedGpu::name);
  if (described == trainer::described_gpus().end())
    throw trainer::input_error("--roofline {}: unknown \"gpu\" '{}': give one of {}", name_or_file,
                               given, trainer::described_gpu_names());
  GpuRates out = rates_of(*described);
  std::vector<std::string_view> names;
  names.reserve(kRows.size());
  for (const RateRow& row : kRows)
    names.push_back(row.name);
  for (const auto& [name, value] : file.items()) {
    if (name == "gpu") continue;
    const auto row = std::ranges::find(kRows, name, &RateRow::name);
    if (row == kRows.end()) {
      const std::string_view near = trainer::nearest_name(name, names);
      throw trainer::input_error("--roofline {}: unknown rate '{}'{}", name_or_file, name,
                                 near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
    }
    const double most = name.ends_with("_share") ? 1 : std::numeric_limits<double>::max();
    if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > most)
      throw trainer::input_error("--roofline {}: {} is {}, not a number above 0{}", name_or_file,
                                 name, value.dump(), most == 1 ? " and up to 1" : "");
    out.*row->field = value.get<double>();
  }
  if (out.power_limit <= out.idle_power)
    throw trainer::input_error("--roofline {}: power_limit is {} W, not above idle_power of {} W",
                               name_or_file, out.power_limit, out.idle_power);
  return out;
}

}  // namespace muo::kit
