#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graphs/decoder.h"
#include "graphs/eval_graph.h"
#include "graphs/run_setup.h"
#include "graphs/step_graph.h"
#include "kernels/metrics.h"
#include "optim/sharded_step.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/memory/pinned_tensor.h"

namespace muo::graphs {

// Everything that one rank of a training run holds on its device. Built on a TraceArena, its graphs
// tell what memory the run needs; built again, in the same order, on a PlannedArena, it runs.
// With RunSetup::step_only it is what a step needs: `eval`, `decoder` and `token_bytes` are
// absent.
class RunState {
 public:
  static constexpr std::int64_t kRingSlots = 16;

  // `setup`, `params`, `plan` and `rank` must outlive it.
  RunState(RankContext& rank, const RunSetup& setup, const std::vector<ParamSpec>& params,
           const optim::ShardingPlan& plan, Arena& arena);

  void warm_up();  // see capture.h; waits
  void capture();
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;

  // Host calls before the first step. `bytes_of_token` may be empty.
  void initialize(const std::vector<std::int32_t>& bytes_of_token);
  void initialize_weights(std::uint64_t seed);
  // As if no step had been: every counter and all state at zero, but for the weights, and these
  // hyper-parameters. No captured graph has to be captured again. Waits.
  void reset(const HyperParameters& hyper);
  // Where a run is, beside its tensors: batches consumed, updates committed, what it has seen.
  struct Counts {
    std::int64_t step = 0;
    std::int64_t updates = 0;
    LossStatistics statistics = {};
  };
  void set_counts(const Counts& counts);
  [[nodiscard]] Counts counts() const;  // waits

  // Whether the record of step `index` is in the ring, and the record; at most kRingSlots steps
  // ago.
  [[nodiscard]] bool has_metrics(std::int64_t index) const;
  [[nodiscard]] MetricsRecord metrics(std::int64_t index) const;
  // By parameter, of the update of step `index`, which was committed: from the record of the step
  // after it, or, of the last step, after finish_update() of every rank, which waits.
  [[nodiscard]] std::span<const UpdateSquares> update_squares(std::int64_t index) const;
  void finish_update();
  // Throws Error, naming the tensor and the ranks, if replicas differ, up to date as they are
  // then; sharded weights have none. Every rank calls it.
  void verify_sync();

  model::RotaryTables rotary;
  PinnedTensor ring;          // MetricsRecords
  PinnedTensor squares_ring;  // (kRingSlots + 1, params, 3) fp64; the last: of finish_update()
  Tensor token_bytes;
  Tensor fingerprints;  // (world, params) int64
  optim::ShardedStep update;
  std::vector<Tensor> weights;
  StepGraph step;
  std::optional<EvalGraph> eval;
  std::optional<Decoder> decoder;

 private:
  struct CountsRead {
    StepScalars scalars;
    LossStatistics statistics;
  };
  [[nodiscard]] MetricsRecord& record_of(std::int64_t index) const;
  void clear_ring();  // nobody has stepped

  RankContext& rank_;
  const RunSetup& setup_;
  const std::vector<ParamSpec>& params_;
  PinnedTensor read_counts_;        // a CountsRead
  PinnedTensor read_fingerprints_;  // as fingerprints
};

// The memory plan of `rank` of the run, traced without a device.
MemoryPlan plan_rank_memory(const RunSetup& setup, const std::vector<ParamSpec>& params,
                            const optim::ShardingPlan& plan, int rank);
// What of it hardly grows with the batch: without activations.
std::int64_t plan_fixed_memory(const RunSetup& setup, const std::vector<ParamSpec>& params,
                               const optim::ShardingPlan& plan, int rank);

}  // namespace muo::graphs
