#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// One step's record in the metrics ring (pinned host memory). `sequence` is written last: a reader
// that sees step + 1 there sees the rest of that step.
struct MetricsRecord {
  std::int64_t sequence = 0;  // step + 1; 0: never written
  std::int64_t step = 0;
  std::int64_t updates = 0;  // after this step
  std::int32_t committed = 0;
  float lr_multiplier = 0;
  float muon_momentum = 0;
  float muon_weight_decay = 0;
  double loss = 0;       // mean over the global batch, nats per token
  double grad_norm = 0;  // L2 over all parameters, of the mean gradient
};

// ring[step % slots] <- the record. Before finish_step.
struct WriteMetricsArgs {
  Tensor ring;     // (slots * sizeof(MetricsRecord)) bytes, pinned
  Tensor totals;   // (2) fp64: loss, sum of squared gradients, over all ranks
  Tensor scalars;  // StepScalars
};
void write_metrics(Stream& stream, const WriteMetricsArgs& args);

}  // namespace muo
