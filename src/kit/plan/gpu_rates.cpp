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

constexpr std::string_view kPublished = "published: NVIDIA's 798 TFLOP/s in products of 8192^3";
constexpr std::string_view kMeasured = "measured on an H100, 2026-11-27: docs/performance.md";
constexpr std::string_view kEstimate = "estimate, from the kernel's instructions";

constexpr std::array kRows = {
    RateRow{"tile_flops", &R::tile_flops, 842e12, kFlops, kPublished},
    RateRow{"wave_seconds", &R::wave_seconds, 2e-6, kNone, kEstimate},
    RateRow{"product_share", &R::product_share, 0.87, kNone,
            "fitted to nanochat's published 120 ms of d12"},
    RateRow{"measured_share", &R::measured_share, 0.90, kNone,
            "fitted to 836.5 ms of d12, measured on an H100 at its power limit"},
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
  GpuRates out{.gpu = std::string(gpu.name),
               .multiprocessors = static_cast<double>(gpu.multiprocessors),
               .peak_flops = gpu.flops,
               .fp32_flops = gpu.fp32_flops};
  for (const RateRow& row : kRows) {
    const double factor = row.scale == kFlops    ? gpu.flops / known.flops
                          : row.scale == kMemory ? gpu.memory_rate / known.memory_rate
                                                 : 1.0;
    out.*row.field = row.value * factor;
  }
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
  return out;
}

}  // namespace muo::kit
