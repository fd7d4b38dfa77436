#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/bench/step_times.h"
#include "app/plan/gpu_rates.h"
#include "app/run/run_config.h"

namespace muo::app {

// Work of one kind in a step, as predicted.
struct PredictedOperation {
  OperationTime work;             // of all its calls; `waited` is 0
  double tiles = 0;               // of a product's call: results times parts of k
  double waves = 0;               // of a product's call
  std::string_view ceiling = {};  // what bounds it: tiles, products, memory, link, launch
};

// A training step of rank 0 on a described GPU, from a capture of it at full size of which nothing
// runs. Kernels follow each other, as each fills the GPU; a collective goes on beside them.
struct Roofline {
  std::vector<PredictedOperation> operations;  // by time, the longest first
  double step = 0;                             // seconds
  double kernels = 0;                          // seconds, summed
  double collectives = 0;                      // seconds, summed
  std::int64_t nodes = 0;                      // of all replays of a step
  std::int64_t longest_chain = 0;              // nodes that follow each other
};
// config: of choose_devices with a described GPU, while a DescribedAttention lives.
Roofline predict_step(const RunConfig& config, const GpuRates& rates);

// The time of one replay if kernels run one at a time, and collectives one at a time beside them.
// `seconds` is the duration of each node, `collective` whether it uses the link.
struct Schedule {
  double seconds = 0;
  std::int64_t longest_chain = 0;
};
Schedule schedule(const GraphTrace& trace, const std::vector<double>& seconds,
                  const std::vector<bool>& collective);

// One call of a product: d (m, n) = a (m, k) b (k, n), `batch` of them.
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
// Of bf16, with the tile and the split of k that take least; `share` of the best tiles' rate.
ProductTime predict_product(const Product& product, const GpuRates& rates, double share);

// Replaces rates by what cuda_kernels_bench --json wrote of kernels in bf16, and product_share by
// the median of its products. Throws InputError that begins with --measured.
void take_measured(GpuRates& rates, const std::string& file);

std::string roofline_text(const RunConfig& run, const Roofline& roofline, const GpuRates& rates);
std::string roofline_json(const RunConfig& run, const Roofline& roofline, const GpuRates& rates);

}  // namespace muo::app
