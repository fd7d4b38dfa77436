#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graphs/micro_steps.h"
#include "graphs/step_phases.h"
#include "model/gpt.h"
#include "optim/sharded_step.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/pinned_tensor.h"

namespace muo::graphs {

struct StepShape {
  std::int64_t batch = 1;         // rows per rank and micro-step
  std::int64_t accumulation = 1;  // micro-steps of the largest step
  // Rows per rank of smaller steps. Unrolled steps of each size have graphs of their own.
  std::vector<std::int64_t> smaller_steps = {};
  model::Recompute recompute = {};
  bool timed = false;                          // measure the phases of the step
  std::optional<MicroSteps> micro_steps = {};  // empty: see StepGraph::form_of
};

// A rank's whole training step: schedules, micro-steps, reductions overlapped with the last
// backward, update, commit, publication (at its end, or at the start of the next: Gather), metrics.
// Captured once and replayed; without capture the same calls run eagerly.
class StepGraph {
 public:
  static constexpr std::int64_t kMaxUnrolled = 8;

  // The given form; if there is none, kUnrolled up to kMaxUnrolled micro-steps, kLoop beyond. A
  // loop cannot hold collectives: kUnrolled if every micro-step is reduced.
  static MicroSteps form_of(const StepShape& shape, bool reduces_every_micro_step);

  // Rings in pinned memory, written by each step (WriteMetricsArgs).
  struct Rings {
    Tensor records, squares;
  };
  // All arguments must outlive this object.
  StepGraph(RankContext& rank, const model::GptConfig& config, const StepShape& shape,
            const model::RotaryTables& rotary, optim::ShardedStep& update, const Rings& rings,
            Arena& arena);

  // True if gradients must survive between graphs (an argument of ShardedStep).
  static bool spans_graphs(const StepShape& shape, bool reduces_every_micro_step) {
    return shape.accumulation > kMaxUnrolled &&
           form_of(shape, reduces_every_micro_step) == MicroSteps::kUnrolled;
  }

  void warm_up();  // runs all captured calls once, eagerly, on arbitrary contents
  void capture();
  // Enqueues one step on compute. inputs, targets: (n, batch, seq_len) int32 in pinned memory, for
  // n micro-steps: those of StepShape or, with MicroSteps::kLoop, any number from 1 up to
  // StepShape::accumulation.
  // `copied` is recorded when they may be overwritten, before the last replay.
  void run(Tensor inputs, Tensor targets, Event& copied);
  // Brings all replicas up to date, if the last step left that to the next one: call it before
  // reading weights between steps. Collective; ordered as work on compute; never part of a capture.
  void flush();

  // Sets the number of the next step, for profilers.
  void count_from(std::int64_t step) { next_step_ = step; }

  [[nodiscard]] std::vector<Graph*> graphs() const;  // captured graphs
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;
  // Number of replays of each of them per step of its size, and of passes of their loops.
  struct Repeats {
    std::int64_t replays = 1;
    std::int64_t passes = 0;
  };
  [[nodiscard]] std::vector<Repeats> repeats() const;
  // Writes the captured graphs for Graphviz: to `path`, or to path.0, path.1, ... if a step has
  // several.
  void write_dot(const std::string& path) const;
  // PhaseClock, by StepPhase; absent unless StepShape::timed. Zero it before use.
  [[nodiscard]] Tensor clock() const { return clock_; }

 private:
  // A segment of micro-steps: the first one of a step opens it, the last one closes it.
  struct Launch {
    std::int64_t step = 0;  // micro-steps of the step
    bool opens = false;
    bool closes = false;
    std::int64_t begin = 0;  // index of its first micro-step in the step, at the first repeat
    std::int64_t micro_steps = 0;
    std::int64_t repeats = 1;
    std::unique_ptr<Graph> graph;
  };
  // The number of micro-steps, in device memory: another one needs no other capture.
  struct Batch {
    std::int64_t pass = 0;         // of the loop: index of the micro-step
    std::int64_t before_last = 0;  // micro-steps before the last one
    float loss_scale = 0;          // 1 / tokens of the global batch
  };
  struct MicroStep {
    std::size_t gpt = 0;  // index
    Tensor inputs = {}, targets = {};
    bool first = false;                                // of the step: overwrites gradients
    optim::ShardedStep::MicroStep* updated = nullptr;  // null: no waits, no reductions
  };
  void add_launches(std::int64_t step);
  [[nodiscard]] bool captures(std::int64_t step) const;
  void set_micro_steps(std::int64_t count);
  void enqueue(const Launch& launch);
  void enqueue_loop();
  void check_interruption(const Launch& launch);  // call before the launch
  void enqueue_micro_step(const MicroStep& step);
  void wait_for_weight(optim::ShardedStep::MicroStep& updated, std::size_t param);
  void mark_phase(StepPhase phase);

  RankContext& rank_;
  optim::ShardedStep& update_;
  std::optional<optim::ShardedStep::OpenStep> open_;  // from the opening to the closing launch
  std::int64_t next_step_ = 0;
  bool behind_ = false;  // replicas are out of date
  Rings rings_;
  const MicroSteps form_;
  const std::int64_t accumulation_;
  const std::int64_t micro_step_tokens_;  // of all ranks
  PinnedTensor staged_batch_;
  Tensor batch_;                  // a Batch
  std::int64_t micro_steps_ = 0;  // in batch_; 0: not set
  std::vector<Launch> launches_;  // of the largest step, then of the others
  std::vector<Tensor> weights_;
  std::vector<Tensor> gradients_;
  Tensor clock_;
  Tensor inputs_, targets_;  // (micro-steps of the longest launch, batch, seq_len) int32
  Tensor current_inputs_, current_targets_;        // (batch, seq_len): the loop's
  std::vector<std::unique_ptr<model::Gpt>> gpts_;  // one per captured micro-step
};

}  // namespace muo::graphs
