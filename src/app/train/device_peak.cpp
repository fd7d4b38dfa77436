#include "app/train/device_peak.h"

#include <fmt/format.h>

#include <optional>

#include "app/train/gemm_rate.h"
#include "app/train/gpu_peaks.h"

namespace muo {

DevicePeak peak_of(const RunConfig& config, double seconds) {
  const GroupOptions& group = config.group;
  if (group.plugin == nullptr) {
    const double flops = measure_gemm_rate(group, config.model.dtype, kRateSize, seconds);
    return {flops, fmt::format("{} in {} matrix products, all devices together, measured now",
                               flops_text(flops), name_of(config.model.dtype))};
  }
  DevicePeak peak;
  for (int i = 0; i < group.world / group.ranks_per_device; ++i) {
    const std::string name = group.plugin->name(i);
    const std::optional<double> flops = gpu_peak_flops(name);
    if (!flops) return {0, fmt::format("that of {} is not known", name)};
    peak.flops += *flops;
  }
  peak.text = fmt::format("{} in bf16 by their maker, all GPUs together", flops_text(peak.flops));
  return peak;
}

}  // namespace muo
