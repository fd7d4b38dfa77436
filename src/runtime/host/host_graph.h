#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/stream.h"

namespace muo {

// Replays do not allocate: tables for a random order are built at capture.
class HostGraph final : public Graph {
 public:
  HostGraph(GraphTrace trace, std::vector<HostTask> tasks, bool random_order);
  [[nodiscard]] const GraphTrace& trace() const override { return trace_; }
  void write_dot(const std::string& path) const override;
  bool time_nodes() override;
  [[nodiscard]] std::span<const NodeTime> node_times() const override { return times_; }

  void run();                                  // in capture order
  void run_shuffled(std::mt19937_64& random);  // in a random topological order

 private:
  GraphTrace trace_;
  std::vector<HostTask> tasks_;
  std::vector<NodeTime> times_;  // by node; empty: replays are not timed
  // Successors of node i: successors_[first_[i], first_[i + 1]).
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> successors_;
  std::vector<std::uint32_t> predecessors_left_;  // per node: predecessors that have not run
  std::vector<std::uint32_t> ready_;
};

}  // namespace muo
