#include "runtime/host/host_graph.h"

#include <chrono>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/graph_trace.h"
#include "runtime/rank_progress.h"

namespace muo {
namespace {

// Accumulates the times of a replay's nodes, which run back to back.
class NodeTimer {
 public:
  explicit NodeTimer(std::span<NodeTime> times) : times_(times) {
    if (!times_.empty()) read();
  }
  void ran(std::size_t node) {
    if (times_.empty()) return;
    const double wall_before = wall_;
    const double thread_before = thread_;
    read();
    NodeTime& time = times_[node];
    ++time.calls;
    time.wall += wall_ - wall_before;
    time.thread += thread_ - thread_before;
  }

 private:
  void read() {
    using Clock = std::chrono::steady_clock;
    wall_ = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    thread_ = thread_seconds();
  }

  std::span<NodeTime> times_;
  double wall_ = 0;  // time at which the previous node ended
  double thread_ = 0;
};

}  // namespace

HostGraph::HostGraph(GraphTrace trace, std::vector<HostTask> tasks, bool random_order)
    : trace_(std::move(trace)), tasks_(std::move(tasks)) {
  if (!random_order) return;
  const std::size_t nodes = trace_.nodes.size();
  first_.assign(nodes + 1, 0);
  for (const GraphTrace::Node& node : trace_.nodes)
    for (const std::uint32_t before : node.after)
      ++first_[before + 1];
  for (std::size_t i = 0; i < nodes; ++i)
    first_[i + 1] += first_[i];
  successors_.resize(first_[nodes]);
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t i = 0; i < nodes; ++i)
    for (const std::uint32_t before : trace_.nodes[i].after)
      successors_[next[before]++] = static_cast<std::uint32_t>(i);
  predecessors_left_.resize(nodes);
  ready_.reserve(nodes);
}

void HostGraph::write_dot(const std::string& path) const {
  std::ofstream file(path);
  file << trace_dot(trace_) << std::flush;
  if (!file) throw Error(concat("cannot write the graph to ", path));
}

bool HostGraph::time_nodes() {
  times_.assign(tasks_.size(), {});
  return true;
}

void HostGraph::run() {
  const RankProgress::Scope replaying(Activity::kDevice);
  NodeTimer timer(times_);
  for (std::size_t node = 0; node < tasks_.size(); ++node) {
    RankProgress::alive();
    tasks_[node]();
    timer.ran(node);
  }
}

void HostGraph::run_shuffled(std::mt19937_64& random) {
  const RankProgress::Scope replaying(Activity::kDevice);
  NodeTimer timer(times_);
  ready_.clear();
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    predecessors_left_[i] = static_cast<std::uint32_t>(trace_.nodes[i].after.size());
    if (predecessors_left_[i] == 0) ready_.push_back(static_cast<std::uint32_t>(i));
  }
  while (!ready_.empty()) {
    std::swap(ready_[random() % ready_.size()], ready_.back());
    const std::uint32_t node = ready_.back();
    ready_.pop_back();
    RankProgress::alive();
    tasks_[node]();
    timer.ran(node);
    for (std::uint32_t s = first_[node]; s < first_[node + 1]; ++s)
      if (--predecessors_left_[successors_[s]] == 0) ready_.push_back(successors_[s]);
  }
}

}  // namespace muo
