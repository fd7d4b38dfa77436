#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/graph_trace.h"
#include "runtime/timeline.h"

namespace muo {
namespace {

// Lanes: the host's thread, then the streams in the order of StreamPriority.
constexpr int kHostLane = 0, kLanes = 4;

int lane_of_node(const GraphTrace& trace, const GraphTrace::Node& node) {
  return 1 + static_cast<int>(trace.streams[static_cast<std::size_t>(node.stream)]);
}

std::string_view name_of_lane(int lane) {
  return lane == kHostLane ? "host" : lane_of(static_cast<StreamPriority>(lane - 1));
}

// An execution of a node, placed in its replay and, in a loop, in its pass.
struct Placed {
  struct Kernel {
    const char* name = nullptr;
    double begin = 0, end = 0;
  };
  const GraphTrace* trace = nullptr;
  std::uint32_t graph = 0, index = 0;  // of the node
  int lane = kHostLane;
  std::int64_t replay = 0;
  std::int64_t pass = -1;  // -1: not in a loop
  double begin = 0, end = 0;
  std::vector<Kernel> kernels = {};  // of a GPU
  double all_began = 0;  // a collective: the time at which its last rank began it; else `begin`
  bool critical = false;

  [[nodiscard]] const GraphTrace::Node& node() const { return trace->nodes[index]; }
  [[nodiscard]] bool is_collective() const { return node().name.find(" #") != std::string::npos; }
};

// In the order in which they began. A kernel runs once in each pass of a loop; an operation may
// have several.
std::vector<Placed> placed_nodes(const RankRecord& rank, const StepRecord& step) {
  using Key = std::tuple<std::uint32_t, std::int64_t, std::uint64_t, std::uint32_t>;
  std::map<Key, std::int64_t> passes;  // by graph, replay, part and node
  std::map<Key, std::size_t> known;    // by graph, replay, pass and node
  std::vector<Placed> out;
  out.reserve(step.runs.size());
  std::array<double, kLanes> lane_end{};
  for (const auto& [graph, run] : step.runs) {
    const GraphTrace& trace = *rank.graphs[graph];
    const std::int64_t replay =
        run.launch - (step.launches.empty() ? 0 : step.launches[graph].begin);
    const std::int64_t pass = passes[{graph, replay, run.part, run.node}]++;
    const auto [at, is_new] =
        known.try_emplace({graph, replay, static_cast<std::uint64_t>(pass), run.node}, out.size());
    const int lane = lane_of_node(trace, trace.nodes[run.node]);
    // GPUs measure a kernel's begin up to some nanoseconds before the end of the last one.
    double& last = lane_end[static_cast<std::size_t>(lane)];
    const double begin = std::max(run.begin, last), end = std::max(run.end, begin);
    last = end;
    if (is_new)
      out.push_back({.trace = &trace,
                     .graph = graph,
                     .index = run.node,
                     .lane = lane,
                     .replay = replay,
                     .pass = loop_of(trace, run.node) == nullptr ? -1 : pass,
                     .begin = begin,
                     .end = end,
                     .all_began = begin});
    Placed& placed = out[at->second];
    placed.end = end;
    if (run.kernel != nullptr) placed.kernels.push_back({run.kernel, begin, end});
  }
  return out;
}

// For each operation of a rank the one on whose end its begin depends.
class Predecessors {
 public:
  explicit Predecessors(const std::vector<Placed>& placed) : placed_(placed) {
    for (std::size_t i = 0; i < placed.size(); ++i) {
      concurrent_ = concurrent_ || !placed[i].kernels.empty();
      runs_[{placed[i].graph, placed[i].replay, placed[i].index}].push_back(i);
    }
  }
  // Empty for the first operation of the step.
  [[nodiscard]] std::optional<std::size_t> of(std::size_t i) const {
    std::optional<std::size_t> last;
    if (concurrent_) find_last(placed_[i], placed_[i].index, last);
    for (std::size_t before = i; before > 0 && !last; --before)
      if (!concurrent_ || placed_[before - 1].end <= placed_[i].begin) last = before - 1;
    return last;
  }

 private:
  // Sets `last` to the one of the node's dependencies that ends last. An operation without work on
  // the GPU is passed over.
  void find_last(const Placed& at, std::uint32_t node, std::optional<std::size_t>& last) const {
    const auto consider = [&](std::size_t candidate) {
      if (placed_[candidate].begin < at.begin &&
          (!last || placed_[candidate].end > placed_[*last].end))
        last = candidate;
    };
    for (const std::uint32_t before : at.trace->nodes[node].after) {
      const auto found = runs_.find({at.graph, at.replay, before});
      if (found == runs_.end())
        find_last(at, before, last);
      else
        for (const std::size_t candidate : found->second)
          consider(candidate);  // of passes: the latest that began earlier
    }
    const GraphTrace::Loop* loop = loop_of(*at.trace, node);
    if (loop == nullptr || node != loop->begin || at.pass <= 0) return;
    if (const auto ends = runs_.find({at.graph, at.replay, loop->end - 1}); ends != runs_.end())
      for (const std::size_t candidate : ends->second)
        consider(candidate);  // of the previous pass
  }

  const std::vector<Placed>& placed_;
  bool concurrent_ = false;
  std::map<std::tuple<std::uint32_t, std::int64_t, std::uint32_t>, std::vector<std::size_t>> runs_;
};

// A transition of a step's critical path to another lane or rank.
struct Crossing {
  struct End {
    std::size_t rank = 0;  // index
    int lane = kHostLane;
    double time = 0;
  };
  End from, to;
};

// Sets Placed::all_began and Placed::critical of all ranks' nodes of a step.
std::vector<Crossing> find_critical_path(std::vector<std::vector<Placed>>& ranks) {
  using Key = std::tuple<std::string_view, std::int64_t, std::int64_t>;
  struct Last {
    double begin = 0;
    std::size_t rank = 0, node = 0;
  };
  std::map<Key, Last> last;
  const auto key_of = [](const Placed& p) { return Key{p.node().name, p.replay, p.pass}; };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].size(); ++i)
      if (const Placed& p = ranks[r][i]; p.is_collective()) {
        Last& at = last[key_of(p)];
        if (p.begin > at.begin) at = {.begin = p.begin, .rank = r, .node = i};
      }
  std::optional<std::pair<std::size_t, std::size_t>> at;  // rank and operation
  double end = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      Placed& p = ranks[r][i];
      if (p.is_collective()) p.all_began = std::min(last[key_of(p)].begin, p.end);
      if (!at || p.end > end) at = {r, i};
      end = std::max(end, p.end);
    }
  std::vector<Predecessors> predecessors(ranks.begin(), ranks.end());
  std::vector<Crossing> out;
  while (at) {
    auto [rank, i] = *at;
    Placed& p = ranks[rank][i];
    p.critical = true;
    if (p.is_collective())
      if (const Last& began = last[key_of(p)]; began.rank != rank) {
        out.push_back({.from = {began.rank, p.lane, began.begin}, .to = {rank, p.lane, p.end}});
        rank = began.rank;  // goes on with what precedes the collective there
        i = began.node;
      }
    const std::optional<std::size_t> before = predecessors[rank].of(i);
    if (!before) break;
    const Placed& from = ranks[rank][*before];
    const Placed& to = ranks[rank][i];
    if (from.lane != to.lane)
      out.push_back({.from = {rank, from.lane, from.begin}, .to = {rank, to.lane, to.begin}});
    at = {rank, *before};
  }
  return out;
}

class TimelineWriter {
 public:
  TimelineWriter(std::span<const RankRecord> ranks, const TimelineFacts& facts)
      : ranks_(ranks), facts_(facts) {
    begin_ = std::numeric_limits<double>::infinity();
    for (const RankRecord& rank : ranks)
      for (const StepRecord& step : rank.steps) {
        for (const StepRecord::Run& run : step.runs)
          begin_ = std::min(begin_, run.run.begin);
        for (const StepRecord::HostRange& range : step.host)
          begin_ = std::min(begin_, range.begin);
      }
  }

  std::string text() {
    std::size_t steps = ranks_.empty() ? 0 : ranks_.front().steps.size();
    for (const RankRecord& rank : ranks_) {
      name_lanes(rank.rank);
      steps = std::min(steps, rank.steps.size());  // an interrupted rank may have one less
    }
    for (std::size_t s = 0; s < steps; ++s) {
      std::vector<std::vector<Placed>> placed;
      for (const RankRecord& rank : ranks_)
        placed.push_back(placed_nodes(rank, rank.steps[s]));
      for (const Crossing& crossing : find_critical_path(placed))
        flow(crossing);
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const StepRecord& step = ranks_[r].steps[s];
        for (const StepRecord::HostRange& range : step.host)
          slice({.rank = ranks_[r].rank,
                 .lane = kHostLane,
                 .name = range.number ? concat(range.name, " ", *range.number) : range.name,
                 .begin = range.begin,
                 .end = range.end});
        for (int lane = kHostLane + 1; lane < kLanes; ++lane)
          lane_slices(ranks_[r].rank, step.step, lane, placed[r]);
        if (r == 0) power_during(step, placed[r]);
      }
    }
    return concat("{\"traceEvents\":[\n", out_, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":",
                  "{\"program\":\"muograph\",\"peak_flops\":", facts_.peak_flops,
                  ",\"steps_left_out\":",
                  !ranks_.empty() && ranks_.front().left_out_steps ? "true" : "false", "}}\n");
  }

 private:
  struct Slice {
    int rank = 0;
    int lane = kHostLane;
    std::string name;
    double begin = 0, end = 0;
    std::string arguments = {};
  };

  void event(const std::string& fields) {
    if (!out_.empty()) out_ += ",\n";
    out_ += "{" + fields + "}";
  }
  static std::string microseconds(double seconds) {
    std::array<char, 32> text{};
    static_cast<void>(std::snprintf(text.data(), text.size(), "%.3f", 1e6 * seconds));
    return text.data();
  }
  void name_lanes(int rank) {
    event(concat(R"("ph":"M","name":"process_name","pid":)", rank, R"(,"args":{"name":"rank )",
                 rank, "\"}"));
    for (int lane = 0; lane < kLanes; ++lane)
      event(concat(R"("ph":"M","name":"thread_name","pid":)", rank, ",\"tid\":", lane,
                   R"(,"args":{"name":")", name_of_lane(lane), "\"}"));
  }
  void slice(const Slice& s) {
    event(concat(R"("ph":"X","name":")", s.name, "\",\"pid\":", s.rank, ",\"tid\":", s.lane,
                 ",\"ts\":", microseconds(s.begin - begin_),
                 ",\"dur\":", microseconds(s.end - s.begin),
                 s.arguments.empty() ? "" : ",\"args\":{" + s.arguments + "}"));
  }
  void flow(const Crossing& crossing) {
    const auto add = [&](const char* phase, const Crossing::End& end) {
      event(concat("\"ph\":\"", phase, R"(","name":"critical path","cat":"critical","id":)", flows_,
                   ",\"pid\":", ranks_[end.rank].rank, ",\"tid\":", end.lane,
                   ",\"ts\":", microseconds(end.time - begin_)));
    };
    add("s", crossing.from);
    add("f\",\"bp\":\"e", crossing.to);
    ++flows_;
  }

  // Counters of the first rank, for all devices.
  void power_during(const StepRecord& step, const std::vector<Placed>& nodes) {
    if (step.host.empty() && nodes.empty()) return;
    double begin = nodes.empty() ? step.host.front().begin : nodes.front().begin, end = begin;
    for (const Placed& node : nodes)
      end = std::max(end, node.end);
    for (const StepRecord::HostRange& range : step.host) {
      begin = std::min(begin, range.begin);
      end = std::max(end, range.end);
    }
    for (const TimelineFacts::Power& at : facts_.power) {
      if (at.time < begin || at.time > end) continue;
      const auto counter = [&](const char* name, double value) {
        event(concat(R"("ph":"C","name":")", name, "\",\"pid\":", ranks_.front().rank, ",\"ts\":",
                     microseconds(at.time - begin_), ",\"args\":{\"mean\":", value, "}"));
      };
      counter("power, W", at.watts);
      counter("clock, MHz", at.clock_mhz);
    }
  }

  // The operations of a lane, nested in slices for the ranges around them. An outer slice is
  // written before the inner ones, which may begin and end with it.
  void lane_slices(int rank, std::int64_t step, int lane, const std::vector<Placed>& nodes) {
    struct Around {  // a slice that is open
      const GraphTrace::Range* range = nullptr;
      std::int64_t replay = 0, pass = 0;
      std::size_t slice = 0;
    };
    std::vector<Around> open;
    std::vector<Slice> slices;
    const auto add = [&](std::string name, double begin, double end, std::string arguments = {}) {
      slices.push_back({rank, lane, std::move(name), begin, end, std::move(arguments)});
    };
    double end = 0;  // of the last operation
    const auto close_to = [&](std::size_t depth) {
      for (; open.size() > depth; open.pop_back())
        slices[open.back().slice].end = end;
    };
    add(concat("step ", step), 0, 0);
    for (const Placed& p : nodes) {
      if (p.lane != lane) continue;
      std::vector<const GraphTrace::Range*> around;
      for (const std::int32_t index : ranges_around(*p.trace, p.node())) {
        const GraphTrace::Range& range = p.trace->ranges[static_cast<std::size_t>(index)];
        if (range.kind != ProfileKind::kCollective) around.push_back(&range);  // named as the node
      }
      std::size_t depth = 0;
      while (depth < std::min(around.size(), open.size()) && open[depth].range == around[depth] &&
             open[depth].replay == p.replay && open[depth].pass == p.pass)
        ++depth;
      close_to(depth);
      for (; depth < around.size(); ++depth) {
        open.push_back({around[depth], p.replay, p.pass, slices.size()});
        add(name_of(*around[depth]), p.begin, 0,
            depth > 0      ? ""
            : p.pass >= 0  ? concat("\"pass\":", p.pass)
            : p.replay > 0 ? concat("\"replay\":", p.replay)
                           : "");
      }
      if (end == 0) slices.front().begin = p.begin;
      end = p.end;
      add(p.node().name, p.begin, p.end, arguments_of(p));
      if (p.all_began > p.begin) add("wait", p.begin, p.all_began);
      if (p.kernels.size() > 1 && !p.is_collective())
        for (const Placed::Kernel& kernel : p.kernels)
          add(escaped(kernel.name), kernel.begin, kernel.end);
    }
    close_to(0);
    slices.front().end = end;
    if (end == 0) return;  // the lane is empty
    for (const Slice& each : slices)
      slice(each);
  }

  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  }

  [[nodiscard]] std::string arguments_of(const Placed& p) const {
    const NodeWork work = work_of(p.node());
    std::string out = concat("\"dtype\":\"", name_of(work.dtype), '"');
    if (!work.shape.empty()) out += concat(",\"shape\":\"", work.shape, '"');
    if (p.kernels.size() == 1 || (!p.kernels.empty() && p.is_collective()))
      out += concat(",\"kernel\":\"", escaped(p.kernels.back().name), '"');
    if (work.flops > 0) out += concat(",\"flops\":", static_cast<std::int64_t>(work.flops));
    if (work.bytes > 0) out += concat(",\"bytes\":", static_cast<std::int64_t>(work.bytes));
    const double seconds = p.end - p.all_began;
    if (seconds > 0 && work.bytes > 0)
      out += work.flops > 0 ? concat(",\"TFLOP/s\":", work.flops / seconds / 1e12)
                            : concat(",\"GB/s\":", work.bytes / seconds / 1e9);
    if (seconds > 0 && work.flops > 0 && facts_.peak_flops > 0)
      out += concat(",\"share of peak\":", work.flops / seconds / facts_.peak_flops);
    return p.critical ? out + ",\"critical\":true" : out;
  }

  const std::span<const RankRecord> ranks_;
  const TimelineFacts& facts_;
  double begin_ = 0;
  std::int64_t flows_ = 0;
  std::string out_;
};

}  // namespace

std::string timeline_json(std::span<const RankRecord> ranks, const TimelineFacts& facts) {
  return TimelineWriter(ranks, facts).text();
}

}  // namespace muo
