#include "app/report/prediction.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace muo {

std::optional<MachineRates> machine_rates(const RunConfig& config,
                                          const PredictionOptions& options) {
  if (!options.link_gbps || !options.gemm_tflops) return std::nullopt;
  return MachineRates{.link_bytes_per_s = 1e9 * *options.link_gbps,
                      .link_latency_s = 1e-6 * options.link_us,
                      .gemm_flops_per_s = 1e12 * *options.gemm_tflops,
                      .step_s = 1e-3 * options.step_ms,
                      .accumulation = config.step.accumulation};
}

std::string rates_text(const MachineRates& rates) {
  return fmt::format("{:g} GB/s, {:g} us a collective, {:g} TFLOP/s, {}",
                     1e-9 * rates.link_bytes_per_s, 1e6 * rates.link_latency_s,
                     1e-12 * rates.gemm_flops_per_s,
                     rates.step_s > 0 ? fmt::format("beside a step of {:g} ms", 1e3 * rates.step_s)
                                      : "with nothing to hide behind");
}

std::string prediction_text(const ExposedTime& time, const MachineRates& rates) {
  return fmt::format(
      "\nPredicted: {}\n"
      "  communication {:.3f} ms, Newton-Schulz {:.3f} ms\n"
      "  added to the step: {:.3f} ms, of which {:.3f} ms are communication (a perfect link would "
      "save\n  them) and {:.3f} ms Newton-Schulz\n",
      rates_text(rates), 1e3 * time.communication_s, 1e3 * time.newton_schulz_s,
      1e3 * time.update_s, 1e3 * time.communication_exposed_s, 1e3 * time.newton_schulz_exposed_s);
}

nlohmann::ordered_json prediction_json(const ExposedTime& time) {
  return {{"communication_ms", 1e3 * time.communication_s},
          {"newton_schulz_ms", 1e3 * time.newton_schulz_s},
          {"update_ms", 1e3 * time.update_s},
          {"exposed_communication_ms", 1e3 * time.communication_exposed_s},
          {"exposed_newton_schulz_ms", 1e3 * time.newton_schulz_exposed_s}};
}

}  // namespace muo
