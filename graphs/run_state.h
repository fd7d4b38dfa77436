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

// Everything that one rank of a training run has on its device. Built on a TraceArena, its graphs
// determine the memory that the run needs; built again, in the same order, on a PlannedArena, it
// runs. With RunSetup::step_only it has only what a step needs: `eval`, `decoder` and `token_bytes`
// are absent.
class RunState {
 public:
  static constexpr std::int64_t kRingSlots = 16;

  // `setup`, `params`, `plan` and `rank` must outlive this object.
  RunState(RankContext& rank, const RunSetup& setup, const std::vector<ParamSpec>& params,
           const optim::ShardingPlan& plan, Arena& arena);

  void warm_up();  // see capture.h; waits
  void capture();
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;

  // Sets up tables and hyper-parameters before the first step. `bytes_of_token` may be empty.
  void initialize(const std::vector<std::int32_t>& bytes_of_token);
  void initialize_weights(std::uint64_t seed);
  // Restarts before the first step: counters and optimizer state become zero, weights stay, and the
  // hyper-parameters are set. Captured graphs stay valid. Returns when this is done.
  void reset(const HyperParameters& hyper);
  // Replaces the hyper-parameters from the next step on. Call it at most once before each step.
  void set_hyper(const HyperParameters& hyper);
  // A run's state besides its tensors: batches consumed, updates committed, loss statistics.
  struct Counts {
    std::int64_t step = 0;
    std::int64_t updates = 0;
    LossStatistics statistics = {};
  };
  void set_counts(const Counts& counts);
  [[nodiscard]] Counts counts() const;  // waits

  // has_metrics: true if the record of step `index` is in the ring; steps of the last kRingSlots
  // can be.
  [[nodiscard]] bool has_metrics(std::int64_t index) const;
  [[nodiscard]] MetricsRecord metrics(std::int64_t index) const;
  // By parameter, for the committed update of step `index`: from the record of the next step or,
  // for the last step, from finish_update(), which every rank calls, and which waits.
  [[nodiscard]] std::span<const UpdateSquares> update_squares(std::int64_t index) const;
  void finish_update();
  // Throws Error, naming the tensor and the ranks, if replicas differ after bringing them up to
  // date; sharded weights have no replicas. Every rank calls it.
  void verify_sync();

  model::RotaryTables rotary;
  PinnedTensor ring;          // MetricsRecords
  PinnedTensor squares_ring;  // (kRingSlots + 1, params, 3) fp64; the last one: finish_update()
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
  void clear_ring();  // as before the first step

  RankContext& rank_;
  const RunSetup& setup_;
  const std::vector<ParamSpec>& params_;
  PinnedTensor read_counts_;  // a CountsRead
  PinnedTensor hyper_;
  PinnedTensor read_fingerprints_;  // shaped like `fingerprints`
};

// The memory plan of `rank`, traced without a device.
MemoryPlan plan_rank_memory(const RunSetup& setup, const std::vector<ParamSpec>& params,
                            const optim::ShardingPlan& plan, int rank);
// The part of its memory that hardly depends on the batch: all but activations.
std::int64_t plan_fixed_memory(const RunSetup& setup, const std::vector<ParamSpec>& params,
                               const optim::ShardingPlan& plan, int rank);

}  // namespace muo::graphs
