#include "runtime/host/host_graph.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/rank_progress.h"

namespace muo {

// Tells the observer the times of a replay's nodes, which run back to back.
class HostGraph::Clock {
 public:
  Clock(NodeObserver* observer, std::int64_t launch) : observer_(observer), launch_(launch) {
    if (observer_ != nullptr) read();
  }
  void ran(std::size_t node) {
    if (observer_ == nullptr) return;
    const double wall_before = wall_;
    const double thread_before = thread_;
    read();
    observer_->ran({.node = static_cast<std::uint32_t>(node),
                    .launch = launch_,
                    .begin = wall_before,
                    .end = wall_,
                    .thread = thread_ - thread_before});
  }

 private:
  void read() {
    wall_ = steady_seconds();
    thread_ = thread_seconds();
  }

  NodeObserver* const observer_;
  const std::int64_t launch_;
  double wall_ = 0;  // time at which the previous node ended
  double thread_ = 0;
};

HostGraph::HostGraph(GraphTrace captured, std::vector<HostTask> tasks,
                     std::vector<LoopCounter> counters, bool random_order)
    : Graph(std::move(captured)), tasks_(std::move(tasks)), counters_(std::move(counters)) {
  if (!random_order) return;
  const std::size_t nodes = trace().nodes.size();
  first_.assign(nodes + 1, 0);
  for (const GraphTrace::Node& node : trace().nodes)
    for (const std::uint32_t before : node.after)
      ++first_[before + 1];
  for (std::size_t i = 0; i < nodes; ++i)
    first_[i + 1] += first_[i];
  successors_.resize(first_[nodes]);
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t i = 0; i < nodes; ++i)
    for (const std::uint32_t before : trace().nodes[i].after)
      successors_[next[before]++] = static_cast<std::uint32_t>(i);
  level_.assign(nodes, -1);
  for (std::size_t loop = 0; loop < trace().loops.size(); ++loop)
    std::fill(level_.begin() + trace().loops[loop].begin, level_.begin() + trace().loops[loop].end,
              static_cast<std::int32_t>(loop));
  predecessors_left_.resize(nodes);
  ready_.reserve(nodes);
  ready_in_loop_.reserve(nodes);
}

bool HostGraph::loop_ends(std::size_t loop) const {
  const LoopCounter& counter = counters_[loop];
  return *counter.passes.as<std::int64_t>() >= *counter.count.as<std::int64_t>();
}

void HostGraph::run_node(std::size_t node, Clock& clock) {
  RankProgress::alive();
  tasks_[node]();
  clock.ran(node);
}

void HostGraph::run() {
  const RankProgress::Scope replaying(Activity::kDevice);
  Clock clock(observer_, launches_++);
  std::size_t node = 0;
  const auto run_up_to = [&](std::size_t end) {
    for (; node < end; ++node)
      run_node(node, clock);
  };
  for (std::size_t loop = 0; loop < trace().loops.size(); ++loop) {
    const auto [begin, end] = trace().loops[loop];
    for (run_up_to(begin); !loop_ends(loop); node = begin)
      run_up_to(end);
    node = end;
  }
  run_up_to(tasks_.size());
}

void HostGraph::run_shuffled(std::mt19937_64& random) {
  const RankProgress::Scope replaying(Activity::kDevice);
  Clock clock(observer_, launches_++);
  run_level(-1, ready_, random, clock);
}

void HostGraph::run_level(std::int32_t level, std::vector<std::uint32_t>& ready,
                          std::mt19937_64& random, Clock& clock) {
  const auto& loops = trace().loops;
  const GraphTrace::Loop nodes =
      level < 0 ? GraphTrace::Loop{0, static_cast<std::uint32_t>(tasks_.size())}
                : loops[static_cast<std::size_t>(level)];
  ready.clear();
  for (std::uint32_t i = nodes.begin; i < nodes.end; ++i) {
    if (level_[i] != level) continue;
    predecessors_left_[i] = static_cast<std::uint32_t>(std::ranges::count_if(
        trace().nodes[i].after, [&](std::uint32_t before) { return before >= nodes.begin; }));
    if (predecessors_left_[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    std::uint32_t node = ready.back();
    ready.pop_back();
    run_node(node, clock);
    const auto loop = std::ranges::find(loops, node + 1, &GraphTrace::Loop::begin);
    if (level < 0 && loop != loops.end()) {
      const auto index = loop - loops.begin();
      while (!loop_ends(static_cast<std::size_t>(index)))
        run_level(static_cast<std::int32_t>(index), ready_in_loop_, random, clock);
      node = loop->end - 1;  // what follows the loop follows its last node
    }
    for (std::uint32_t s = first_[node]; s < first_[node + 1]; ++s)
      if (level_[successors_[s]] == level && --predecessors_left_[successors_[s]] == 0)
        ready.push_back(successors_[s]);
  }
}

}  // namespace muo
