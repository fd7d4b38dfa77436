#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphs/step_phases.h"
#include "model/gpt.h"
#include "optim/sharded_step.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"

namespace muo::graphs {

struct StepShape {
  std::int64_t batch = 1;         // rows per rank and micro-step
  std::int64_t accumulation = 1;  // micro-steps per step
  model::Recompute recompute = {};
  bool timed = false;  // the step writes how long its phases took
};

// A rank's whole training step: schedules, micro-steps, reductions inside the last backward,
// update, commit, publication (at its end, or at the next one's head: Gather), metrics. Captured
// once and replayed; not captured, the same calls run eagerly. Up to kMostUnrolled micro-steps are
// one graph; beyond, an opening graph and a middle graph of kMostUnrolled micro-steps each are
// replayed before the closing one.
class StepGraph {
 public:
  static constexpr std::int64_t kMostUnrolled = 8;

  // Rings in pinned memory that each step writes (WriteMetricsArgs).
  struct Rings {
    Tensor records, squares;
  };
  // Everything given must outlive this.
  StepGraph(RankContext& rank, const model::GptConfig& config, const StepShape& shape,
            const model::RotaryTables& rotary, optim::ShardedStep& update, const Rings& rings,
            Arena& arena);

  // True if gradients must survive between graphs, which is for ShardedStep to know.
  static bool spans_graphs(const StepShape& shape) { return shape.accumulation > kMostUnrolled; }

  void warm_up();  // every call of a capture once, eagerly, on whatever the tensors hold
  void capture();
  // Enqueues one step on compute. inputs, targets: (accumulation, batch, seq_len) int32 in pinned
  // memory; `copied` is recorded when they are free again, before the last replay.
  void run(Tensor inputs, Tensor targets, Event& copied);
  // Brings every replica up to date, where the last step left that to the next one: before anybody
  // reads weights between steps. Collective; ordered as work on compute; never part of a capture.
  void flush();

  // What the next step is called on a profiler's timeline.
  void count_from(std::int64_t step) { next_step_ = step; }

  [[nodiscard]] std::vector<Graph*> graphs() const;  // that are captured
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;
  // How often a step replays each of them.
  [[nodiscard]] std::vector<std::int64_t> repeats() const;
  // Writes the captured graphs for Graphviz: to `path`, or path.0, path.1, ... if a step has
  // several.
  void write_dot(const std::string& path) const;
  // PhaseClock, by StepPhase; absent unless StepShape::timed. To be zeroed before it counts.
  [[nodiscard]] Tensor clock() const { return clock_; }

 private:
  // A stretch of micro-steps: the first of a step opens it, the last closes it.
  struct Launch {
    bool opens = false;
    bool closes = false;
    std::int64_t begin = 0;  // the first micro-step's index in the step, the first time
    std::int64_t micro_steps = 0;
    std::int64_t repeats = 1;
    std::unique_ptr<Graph> graph;
  };
  void enqueue(const Launch& launch);
  void give_way(const Launch& launch);  // to an interruption, before it is launched
  // `index` in its graph, `of_step` in the step.
  void micro_step(std::int64_t index, std::int64_t of_step);
  void wait_for_weight(optim::ShardedStep::MicroStep& updated, std::size_t param);
  void lap(StepPhase phase);

  RankContext& rank_;
  optim::ShardedStep& update_;
  std::optional<optim::ShardedStep::OpenStep>
      open_;  // from the launch that opens to the one that closes
  std::int64_t next_step_ = 0;
  bool behind_ = false;  // replicas
  Rings rings_;
  float loss_scale_;  // 1 / tokens of the global batch
  std::vector<Launch> launches_;
  std::vector<Tensor> weights_;
  std::vector<Tensor> gradients_;
  Tensor clock_;
  Tensor inputs_, targets_;  // (micro-steps of the longest launch, batch, seq_len) int32
  std::vector<std::unique_ptr<model::Gpt>> gpts_;  // one per unrolled micro-step
};

}  // namespace muo::graphs
