#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "runtime/stream.h"

namespace muo {

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
};

// Adds what the nodes of a graph took to the rows of their kind; times: by node.
void add_operations(std::vector<OperationTime>& rows, const GraphTrace& trace,
                    std::span<const NodeTime> times);
// The same of rows, as of another rank.
void add_operations(std::vector<OperationTime>& rows, std::span<const OperationTime> more);

}  // namespace muo
