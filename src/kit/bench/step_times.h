#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/phase_clock.h"
#include "optim/sharding_plan.h"
#include "runtime/graph_trace.h"
#include "runtime/power_meter.h"
#include "trainer/run/run_config.h"

namespace muo::kit {

// Time and work of all operations with the same name, shape, dtype and phase.
struct OperationTime {
  std::string name;   // as in the graph: "gemm"; without the tag of a collective
  std::string shape;  // as in Cost
  std::string phase;  // of the step that enqueued it: phase_of()
  DType dtype = DType::kF32;
  std::int64_t calls = 0;
  double seconds = 0;  // running time of the threads
  double waited = 0;   // seconds of waiting for other ranks or for a processor
  double flops = 0;    // 0: the operation is bound by memory
  double bytes = 0;

  [[nodiscard]] bool is_collective() const;
  [[nodiscard]] bool is_product() const;
  // Adds work of the same kind. Returns false and adds nothing if `more` is of another kind.
  bool add(const OperationTime& more);
};

// Times of a run's training steps, on random tokens with the frequencies of text.
struct StepTimes {
  // Seconds per step: mean of consecutive steps, from the start of the first rank to the end of the
  // last.
  double step = 0;
  // Energy and clock of all devices during these steps; empty if a driver does not report them.
  std::optional<PowerUse> power;
  // By rank: median seconds that the host takes to enqueue a step; 0 on the host backend.
  std::vector<double> launch;
  // Set only if config.step.timed: by rank, sums over all steps.
  std::vector<PhaseClock> clocks;
  // Set only if config.step.timed and steps are host graphs: sums over all ranks and steps.
  std::vector<OperationTime> operations;
  std::string timeline;  // what to say of the file of --timeline; empty: none was written
};

// Runs single steps to measure `launch`, then `steps` more for the rest, in which the host is at
// most one step ahead, as in training. Steps are replayed or eager depending on
// config.options.capture.graph. If config.step.timed, records one more step for --timeline.
StepTimes measure_steps(const trainer::RunConfig& config, std::int64_t steps);

// Returns the work of one execution of a node, with 0 calls and no time.
OperationTime operation_of(const GraphTrace& trace, const GraphTrace::Node& node);

// Adds the times of a host graph's nodes to the rows of their kinds.
void add_operations(std::vector<OperationTime>& rows, const GraphTrace& trace,
                    std::span<const NodeSums::Sum> times);
// Adds the rows of another rank.
void add_operations(std::vector<OperationTime>& rows, std::span<const OperationTime> more);

}  // namespace muo::kit
