#pragma once

#include <cstdint>

#include "kernels/commit.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// One step's record in the metrics ring (pinned host memory). `sequence` is written last: if a
// reader finds step + 1 there, the record of that step is complete.
struct MetricsRecord {
  std::int64_t sequence = 0;  // step + 1; 0: never written
  std::int64_t step = 0;
  std::int64_t updates = 0;  // after this step
  std::int32_t committed = 0;
  Verdict verdict = Verdict::kOrdinary;
  // Standard deviations above the mean of the previous steps.
  float loss_deviations = 0, norm_deviations = 0;
  float gradient_scale = 1;  // clipping
  // Rank and index of the first non-finite value (optim/nonfinite_value.h); -1: none.
  std::int32_t bad_rank = -1;
  std::int64_t bad_index = -1;
  float lr_multiplier = 0;
  float muon_momentum = 0;
  float muon_weight_decay = 0;
  double loss = 0;       // mean over the global batch, nats per token
  double grad_norm = 0;  // L2 norm of the mean gradient over all parameters, before clipping
};

// Fills all of a record except its sequence.
MUO_HOST_DEVICE inline void fill_record(const StepScalars& scalars, const double* totals,
                                        std::int64_t count, MetricsRecord& record) {
  record.step = scalars.step;
  record.updates = scalars.updates + scalars.commit;
  record.committed = scalars.commit;
  record.verdict = scalars.verdict;
  record.loss_deviations = scalars.loss_deviations;
  record.norm_deviations = scalars.norm_deviations;
  record.gradient_scale = scalars.gradient_scale;
  record.lr_multiplier = scalars.lr_multiplier;
  record.muon_momentum = scalars.muon_momentum;
  record.muon_weight_decay = scalars.muon_weight_decay;
  record.loss = totals[kLossTotal];
  record.grad_norm = sqrt(totals[kSquaresTotal]);
  double highest = 0;  // belongs to the lowest index
  record.bad_rank = -1;
  for (std::int64_t i = kRankIndices; i < count; ++i)
    if (totals[i] > highest) {
      highest = totals[i];
      record.bad_rank = static_cast<std::int32_t>(i - kRankIndices);
    }
  record.bad_index = highest > 0 ? static_cast<std::int64_t>(kNoIndex - highest) : -1;
}

// ring[step % slots] <- the record, squares_ring[step % slots] <- squares. Enqueue
// before finish_step.
struct WriteMetricsArgs {
  Tensor ring;               // (slots * sizeof(MetricsRecord)) bytes, pinned
  Tensor totals;             // (kRankIndices + world) fp64 (kernels/commit.h)
  Tensor scalars;            // StepScalars
  Tensor squares_ring = {};  // (slots, params, 3) fp64, pinned; given with squares
  Tensor squares = {};       // (params, 3) fp64: ShardedStep::update_squares()
};
inline std::int64_t metrics_slots(const Tensor& ring) {
  return ring.bytes() / static_cast<std::int64_t>(sizeof(MetricsRecord));
}
void write_metrics(Stream& stream, const WriteMetricsArgs& args);

}  // namespace muo
