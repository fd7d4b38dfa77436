#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/run/run_config.h"
#include "base/dtype.h"
#include "kernels/phase_clock.h"
#include "optim/sharding_plan.h"
#include "runtime/stream.h"

namespace muo::app {

// What all work of one kind took: operations of one name, shape, dtype and phase.
struct OperationTime {
  std::string name;   // as in the graph: "gemm"; of collectives without their tag
  std::string shape;  // as in Cost
  std::string phase;  // what of a step enqueued it: ProfileRange::phase()
  DType dtype = DType::kF32;
  std::int64_t calls = 0;
  double seconds = 0;  // in which threads ran
  double waited = 0;   // seconds in which they did not: for other ranks, or for a processor
  double flops = 0;    // 0: it is bound by memory
  double bytes = 0;

  [[nodiscard]] bool is_collective() const;
  [[nodiscard]] bool is_product() const;
  // Adds work of the same kind; false, and nothing is added, if `more` is of another.
  bool add(const OperationTime& more);
};

// What whole training steps of a run cost, on random tokens, as often as text has them.
struct StepTimes {
  // Seconds: mean of steps that follow each other, from the first rank's start to the last one's
  // end.
  double step = 0;
  // By rank: seconds in which its host enqueues a step, the median; 0 on a host, which computes it.
  std::vector<double> launch;
  // Only if config.step.timed: by rank, of all steps; and of all ranks and steps together, in
  // graphs of a host, else empty.
  std::vector<PhaseClock> clocks;
  std::vector<OperationTime> operations;
};

// Runs steps one by one for `launch`, then `steps` more for the rest, as training does: the host is
// at most one step ahead. config.options.capture.graph: replayed, or the same calls eagerly.
StepTimes measure_steps(const RunConfig& config, std::int64_t steps);

// What one call of a node does: flops, bytes, and what kind of work it is; no calls and no time.
OperationTime operation_of(const GraphTrace::Node& node);
// Of all that it accesses, once per read or write.
double accessed_bytes(const GraphTrace::Node& node);

// Adds what the nodes of a graph took to the rows of their kind; times: by node.
void add_operations(std::vector<OperationTime>& rows, const GraphTrace& trace,
                    std::span<const NodeTime> times);
// The same of rows, as of another rank.
void add_operations(std::vector<OperationTime>& rows, std::span<const OperationTime> more);

}  // namespace muo::app
