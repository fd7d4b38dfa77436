#include "runtime/timeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/durable_files.h"
#include "runtime/comm/process_group.h"
#include "runtime/graph_trace.h"

namespace muo {
namespace {

constexpr std::size_t kBefore = std::numeric_limits<std::size_t>::max();

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepRecorder::StepRecorder(int rank, std::span<Graph* const> graphs) : named_(this) {
  record_.rank = rank;
  for (Graph* graph : graphs) {
    GraphObserver& observer = observers_.emplace_back();
    observer.recorder = this;
    observer.index = static_cast<std::uint32_t>(record_.graphs.size());
    if (!graph->observe(&observer)) continue;
    observer.graph = graph;
    record_.graphs.push_back(&graph->trace());
  }
}

StepRecorder::~StepRecorder() {
  for (const GraphObserver& observer : observers_)
    if (observer.graph != nullptr) observer.graph->observe(nullptr);
}

void StepRecorder::GraphObserver::ran(std::uint32_t node, double begin, double end,
                                      double /*thread*/) {
  if (recorder->current_)
    recorder->current_->nodes.push_back({.graph = index, .node = node, .begin = begin, .end = end});
}

void StepRecorder::begins(const ProfileRange::Open& range) {
  open_.push_back(current_ ? current_->host.size() : kBefore);
  if (current_)
    current_->host.push_back(
        {.name = range.name,
         .number = range.kind == ProfileKind::kCollective ? std::nullopt : range.number,
         .begin = seconds_now()});
}

void StepRecorder::ends() {
  if (open_.back() != kBefore) current_->host[open_.back()].end = seconds_now();
  open_.pop_back();
}

void StepRecorder::begin_step(std::int64_t step, bool last_is_slowest) {
  end_step(last_is_slowest);
  current_.emplace();
  current_->step = step;
  if (record_.steps.empty()) return;
  current_->nodes.reserve(record_.steps.front().nodes.size());
  current_->host.reserve(record_.steps.front().host.size());
}

void StepRecorder::end_step(bool is_slowest) {
  if (!current_) return;
  std::ranges::fill(open_, kBefore);
  if (is_slowest) slowest_ = *current_;
  record_.steps.push_back(*std::exchange(current_, std::nullopt));
  if (record_.steps.size() <= kMaxSteps) return;
  record_.left_out_steps = true;
  record_.steps.resize(1);
}

RankRecord StepRecorder::take(bool last_is_slowest) {
  end_step(last_is_slowest);
  if (record_.left_out_steps) record_.steps = {record_.steps.front(), slowest_.value()};
  return std::move(record_);
}

Timeline::Timeline(const std::filesystem::path& file, const ProcessGroup* processes)
    : file_(processes == nullptr ? file
                                 : std::filesystem::path(file).replace_filename(
                                       concat(file.stem().string(), ".", processes->process(),
                                              file.extension().string()))) {}

bool Timeline::last_is_slowest() {
  const double now = seconds_now();
  const std::optional<double> before = std::exchange(last_end_, now);
  if (!before) return false;
  const bool first = !std::exchange(has_first_, true);
  if (first || now - *before <= longest_) return false;
  longest_ = now - *before;
  return true;
}

void Timeline::add(RankRecord record) {
  const std::lock_guard lock(mutex_);
  ranks_.push_back(std::move(record));
}

void Timeline::write() {
  std::ranges::sort(ranks_, {}, &RankRecord::rank);
  try {
    replace_file(file_, timeline_json(ranks_));
  } catch (const WriteError& error) {  // no reason to end a run
    failure_ = error.what();
  }
}

std::string Timeline::note() const {
  if (!is_written()) return "warning: --timeline: none of the steps to record was run";
  if (!failure_.empty()) return concat("warning: --timeline: ", failure_);
  const bool host_only = ranks_.front().graphs.empty();
  return concat("timeline: ", file_.string(), host_only ? " (of the host only: no replays)" : "");
}

namespace {

// Lanes: the host's thread, then the streams in the order of StreamPriority.
constexpr int kHostLane = 0, kLanes = 4;

int lane_of_node(const GraphTrace& trace, const GraphTrace::Node& node) {
  return 1 + static_cast<int>(trace.streams[static_cast<std::size_t>(node.stream)]);
}

std::string_view name_of_lane(int lane) {
  return lane == kHostLane ? "host" : lane_of(static_cast<StreamPriority>(lane - 1));
}

// A node of a step, placed in its replay and, in a loop, in its pass.
struct Placed {
  const GraphTrace* trace = nullptr;
  const GraphTrace::Node* node = nullptr;
  int lane = kHostLane;
  std::int64_t replay = 0;
  std::int64_t pass = -1;  // -1: not in a loop
  double begin = 0, end = 0;
  double all_began = 0;  // a collective: the time at which its last rank began it; else `begin`
  bool critical = false;

  [[nodiscard]] bool is_collective() const { return node->name.find(" #") != std::string::npos; }
};

std::vector<Placed> placed_nodes(const RankRecord& rank, const StepRecord& step) {
  struct Position {
    std::int64_t replay = -1, pass = 0;
  };
  std::vector<Position> positions(rank.graphs.size());
  std::vector<Placed> out;
  out.reserve(step.nodes.size());
  for (const StepRecord::Node& at : step.nodes) {
    const GraphTrace& trace = *rank.graphs[at.graph];
    Position& now = positions[at.graph];
    if (at.node == 0) ++now.replay;
    const GraphTrace::Loop* loop = loop_of(trace, at.node);
    if (loop == nullptr) now.pass = 0;
    const GraphTrace::Node& node = trace.nodes[at.node];
    out.push_back({.trace = &trace,
                   .node = &node,
                   .lane = lane_of_node(trace, node),
                   .replay = now.replay,
                   .pass = loop == nullptr ? -1 : now.pass,
                   .begin = at.begin,
                   .end = at.end,
                   .all_began = at.begin});
    if (loop != nullptr && at.node + 1 == loop->end) ++now.pass;
  }
  return out;
}

// A collective at which the critical path of a step changes from rank `to` back to rank `from`,
// which began it last.
struct Crossing {
  std::size_t from = 0, to = 0;  // indices of ranks
  double begin = 0, end = 0;
  int lane = kHostLane;
};

// Sets Placed::all_began and Placed::critical of all ranks' nodes of a step.
std::vector<Crossing> find_critical_path(std::vector<std::vector<Placed>>& ranks) {
  using Key = std::tuple<std::string_view, std::int64_t, std::int64_t>;
  struct Last {
    double begin = 0;
    std::size_t rank = 0, node = 0;
  };
  std::map<Key, Last> last;
  const auto key_of = [](const Placed& p) { return Key{p.node->name, p.replay, p.pass}; };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].size(); ++i)
      if (const Placed& p = ranks[r][i]; p.is_collective()) {
        Last& at = last[key_of(p)];
        if (p.begin > at.begin) at = {.begin = p.begin, .rank = r, .node = i};
      }
  std::size_t rank = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (Placed& p : ranks[r])
      if (p.is_collective()) p.all_began = std::min(last[key_of(p)].begin, p.end);
    if (!ranks[r].empty() && (ranks[rank].empty() || ranks[r].back().end > ranks[rank].back().end))
      rank = r;
  }
  std::vector<Crossing> out;
  for (std::size_t i = ranks[rank].size(); i > 0; --i) {
    Placed& p = ranks[rank][i - 1];
    p.critical = true;
    if (!p.is_collective()) continue;
    const Last& at = last[key_of(p)];
    if (at.rank == rank) continue;
    out.push_back({.from = at.rank, .to = rank, .begin = at.begin, .end = p.end, .lane = p.lane});
    rank = at.rank;
    i = at.node + 1;  // goes on with what precedes the collective there
  }
  return out;
}

class TimelineWriter {
 public:
  explicit TimelineWriter(std::span<const RankRecord> ranks) : ranks_(ranks) {
    begin_ = std::numeric_limits<double>::infinity();
    for (const RankRecord& rank : ranks)
      for (const StepRecord& step : rank.steps) {
        for (const StepRecord::Node& node : step.nodes)
          begin_ = std::min(begin_, node.begin);
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
      }
    }
    return concat("{\"traceEvents\":[\n", out_, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":",
                  "{\"program\":\"muograph\",\"steps_left_out\":",
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
    const auto end = [&](const char* phase, std::size_t rank, double time) {
      event(concat("\"ph\":\"", phase, R"(","name":"critical path","cat":"critical","id":)", flows_,
                   ",\"pid\":", ranks_[rank].rank, ",\"tid\":", crossing.lane,
                   ",\"ts\":", microseconds(time - begin_)));
    };
    end("s", crossing.from, crossing.begin);
    end("f\",\"bp\":\"e", crossing.to, crossing.end);
    ++flows_;
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
      for (const std::int32_t index : ranges_around(*p.trace, *p.node)) {
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
            depth == 0 && p.pass >= 0 ? concat("\"pass\":", p.pass) : "");
      }
      if (end == 0) slices.front().begin = p.begin;
      end = p.end;
      add(p.node->name, p.begin, p.end, arguments_of(p));
      if (p.all_began > p.begin) add("wait", p.begin, p.all_began);
    }
    close_to(0);
    slices.front().end = end;
    if (end == 0) return;  // the lane is empty
    for (const Slice& each : slices)
      slice(each);
  }

  static std::string arguments_of(const Placed& p) {
    const NodeWork work = work_of(*p.node);
    std::string out = concat("\"dtype\":\"", name_of(work.dtype), '"');
    if (!work.shape.empty()) out += concat(",\"shape\":\"", work.shape, '"');
    if (work.flops > 0) out += concat(",\"flops\":", static_cast<std::int64_t>(work.flops));
    if (work.bytes > 0) out += concat(",\"bytes\":", static_cast<std::int64_t>(work.bytes));
    const double seconds = p.end - p.all_began;
    if (seconds > 0 && work.bytes > 0)
      out += work.flops > 0 ? concat(",\"TFLOP/s\":", work.flops / seconds / 1e12)
                            : concat(",\"GB/s\":", work.bytes / seconds / 1e9);
    return p.critical ? out + ",\"critical\":true" : out;
  }

  std::span<const RankRecord> ranks_;
  double begin_ = 0;
  std::int64_t flows_ = 0;
  std::string out_;
};

}  // namespace

std::string timeline_json(std::span<const RankRecord> ranks) {
  return TimelineWriter(ranks).text();
}

}  // namespace muo
