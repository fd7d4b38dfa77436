#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kit/bench/step_times.h"
#include "kit/plan/gpu_rates.h"
#include "kit/plan/step_power.h"
#include "trainer/run/run_config.h"

namespace muo::kit {

// The predicted work of one kind in a step.
struct PredictedOperation {
  OperationTime work;             // sum of all calls; `waited` is 0
  double tiles = 0;               // per call of a product: tiles of the result times parts of k
  double waves = 0;               // per call of a product
  std::string_view ceiling = {};  // what bounds it: tiles, products, memory, link or launch
};

// Prediction of rank 0's training step on a GPU given by its profile, from a full-size capture that
// is not executed. Kernels run one at a time, because each fills the GPU; collectives overlap with
// them. All times are at the highest clock that the power limit allows (step_power()).
struct Roofline {
  std::vector<PredictedOperation> operations;  // by time, the longest first
  double step = 0;                             // seconds
  double kernels = 0;                          // seconds, summed
  double collectives = 0;                      // seconds, summed
  double executed_flops = 0;                   // on tensor cores: GpuRates
  StepPower power;
  std::int64_t nodes = 0;          // in all replays of a step and passes of loops
  std::int64_t longest_chain = 0;  // nodes in the longest chain of dependencies
};
// Precondition: the devices of `config` are those of a GPU profile (choose_devices()), and a
// DescribedAttention exists.
Roofline predict_step(const trainer::RunConfig& config, const GpuRates& rates);

// Returns the time of one replay in which kernels run one at a time, and collectives one at a time,
// overlapping with kernels. By node: `seconds` is its duration, and `collective` is true if it uses
// the link. Loops make `passes` passes.
struct Schedule {
  double seconds = 0;
  std::int64_t longest_chain = 0;
};
Schedule schedule(const GraphTrace& trace, const std::vector<double>& seconds,
                  const std::vector<bool>& collective, std::int64_t passes = 1);

// One call of `batch` products: d (m, n) = a (m, k) b (k, n).
struct Product {
  std::int64_t m = 0, k = 0, n = 0, batch = 1;

  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(m * n * batch) * static_cast<double>(k);
  }
};
struct ProductTime {
  double seconds = 0;
  double tiles = 0, waves = 0;
};
// Predicts a bf16 product with the fastest tile and split of k, at `share` of the tiles' rate and
// at rate_clock.
ProductTime predict_product(const Product& product, const GpuRates& rates, double share);

// Replaces rates by those of bf16 kernels in an output of cuda_kernels_bench --json, and both
// shares of products by the median of its products. Times of products and attention are converted
// from the row's clock_mhz to rate_clock; without that field they are taken as times at rate_clock,
// so that a step is predicted too slow if the clock was lower. Rows with clock_mhz, and watts or
// joules, also determine the energies (fit_power()). Throws InputError with a message that begins
// with --measured.
void apply_measured(GpuRates& rates, const std::string& file);

std::string roofline_text(const trainer::RunConfig& run, const Roofline& roofline,
                          const GpuRates& rates);
std::string roofline_json(const trainer::RunConfig& run, const Roofline& roofline,
                          const GpuRates& rates);

}  // namespace muo::kit
