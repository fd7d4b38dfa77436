#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/stream.h"

namespace muo {

// Replays do not allocate: tables for a random order are built at capture.
class HostGraph final : public Graph {
 public:
  // `counters`: of trace.loops.
  HostGraph(GraphTrace trace, std::vector<HostTask> tasks, std::vector<LoopCounter> counters,
            bool random_order);
  bool observe(NodeObserver* observer) override {
    observer_ = observer;
    return true;
  }

  void run();                                  // in capture order
  void run_shuffled(std::mt19937_64& random);  // in a random topological order

 private:
  class Clock;

  [[nodiscard]] bool loop_ends(std::size_t loop) const;
  void run_node(std::size_t node, Clock& clock);
  // Runs the nodes of one level, those of no loop (-1) or of one pass of a loop.
  void run_level(std::int32_t level, std::vector<std::uint32_t>& ready, std::mt19937_64& random,
                 Clock& clock);

  std::vector<HostTask> tasks_;
  std::vector<LoopCounter> counters_;
  NodeObserver* observer_ = nullptr;  // null: replays are not timed
  // For a random order. Successors of node i: successors_[first_[i], first_[i + 1]).
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> successors_;
  std::vector<std::int32_t> level_;               // by node: index of its loop, or -1
  std::vector<std::uint32_t> predecessors_left_;  // by node: those of its level that have not run
  std::vector<std::uint32_t> ready_, ready_in_loop_;
};

}  // namespace muo
