#include "runtime/host/host_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/graph_trace.h"
#include "runtime/host/host_graph.h"
#include "runtime/memory/arena.h"
#include "runtime/profile_range.h"

namespace muo {
namespace {

struct Capture {
  GraphTrace trace;
  std::vector<HostTask> tasks;
  std::vector<LoopCounter> counters;  // of trace.loops
  // Ranges that were open at the last node: the outermost first, and their indices in the trace.
  std::vector<std::pair<std::uint64_t, std::int32_t>> ranges;
  bool open = true;
  bool in_loop = false;
  // A loop's body, and what follows it, are parts of their own: other streams join each anew, and
  // events are valid within one.
  int part = 0;
  std::uint32_t part_begin = 0;  // first node

  // Returns the index of the innermost open range, or -1.
  std::int32_t range() {
    const std::span<const ProfileRange::Open> now = ProfileRange::open();
    const auto same = std::ranges::mismatch(now, ranges, {}, &ProfileRange::Open::id,
                                            &std::pair<std::uint64_t, std::int32_t>::first);
    ranges.erase(same.in2, ranges.end());
    for (auto more = same.in1; more != now.end(); ++more) {
      const std::int32_t outer = ranges.empty() ? -1 : ranges.back().second;
      ranges.emplace_back(more->id, static_cast<std::int32_t>(trace.ranges.size()));
      trace.ranges.push_back(
          {.kind = more->kind, .name = more->name, .number = more->number, .outer = outer});
    }
    return ranges.empty() ? -1 : ranges.back().second;
  }
};

class HostEvent final : public Event {
 public:
  // Work runs immediately, so an event recorded outside a capture has always completed.
  void synchronize() override {
    MUO_CHECK(!capture, "synchronising with an event that was recorded in a capture");
  }

  bool recorded = false;
  std::shared_ptr<Capture> capture;  // in which it was recorded, or null
  int part = 0;                      // of the capture
  std::vector<std::uint32_t> after;  // nodes that must precede the work that waits
};

bool overlap(const Tensor& a, const Tensor& b) {
  return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

class HostStream final : public Stream {
 public:
  HostStream(std::shared_ptr<HostDeviceState> device, StreamPriority priority)
      : device_(std::move(device)), priority_(priority) {}

  void record(Event& event) override {
    auto& host = dynamic_cast<HostEvent&>(event);
    host.recorded = true;
    host.capture = capturing() ? capture_ : nullptr;
    host.part = part_;
    host.after = capturing() ? frontier_ : std::vector<std::uint32_t>{};
  }

  void wait(Event& event) override {
    auto& host = dynamic_cast<HostEvent&>(event);
    if (!host.capture) {
      MUO_CHECK(!capturing(), host.recorded
                                  ? "a capture waits for an event that was recorded outside it"
                                  : "a capture waits for an event that was never recorded");
      return;  // work runs immediately: nothing to wait for
    }
    MUO_CHECK(host.capture->open, "waiting for an event of a finished capture");
    MUO_CHECK(host.part == host.capture->part, "an event crosses the boundary of a loop");
    if (!capturing()) enter(host.capture);  // joins the capture, as a CUDA stream does
    MUO_CHECK(capture_ == host.capture, "waiting for an event of another capture");
    for (const std::uint32_t node : host.after)
      if (std::ranges::find(frontier_, node) == frontier_.end()) frontier_.push_back(node);
  }

  void synchronize() override {
    check_outside_capture("synchronize");
    check_can_run("synchronize");
  }

  void launch(Graph& graph) override {
    check_outside_capture("launch");
    check_can_run("launch");
    auto& host = dynamic_cast<HostGraph&>(graph);
    if (device_->options.random_order_seed)
      host.run_shuffled(device_->random);
    else
      host.run();
  }

  [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    check_outside_capture("capture");
    const auto mine = std::make_shared<Capture>();
    const Closing closing(*mine, *device_);  // also releases the streams that joined
    enter(mine);
    {
      const ProfileRange::Named named;
      body();
    }
    check_joined();
    if (device_->options.check_races) check_races(mine->trace);
    return std::make_unique<HostGraph>(std::move(mine->trace), std::move(mine->tasks),
                                       std::move(mine->counters),
                                       device_->options.random_order_seed.has_value());
  }

  void loop(const LoopCounter& counter, std::int64_t count,
            const std::function<void()>& body) override {
    std::int64_t* const passes = counter.passes.as<std::int64_t>();
    const std::int64_t* const limit = counter.count.as<std::int64_t>();
    const std::array<Access, 2> accesses = {access_of(counter.passes, true, true),
                                            access_of(counter.count, false)};
    const auto begin = [&] { enqueue_host("begin_loop", accesses, [passes] { *passes = 0; }); };
    const auto end_pass = [&] { enqueue_host("end_pass", accesses, [passes] { ++*passes; }); };
    if (runs_now("loop")) {
      MUO_CHECK(*limit == count, "a loop of ", count, " passes whose counter has ", *limit);
      begin();
      for (std::int64_t pass = 0; pass < count; ++pass) {
        body();
        end_pass();
      }
      return;
    }
    MUO_CHECK(!capture_->in_loop, "a loop within a loop");
    begin();
    begin_part(true);
    const auto first = static_cast<std::uint32_t>(capture_->trace.nodes.size());
    body();
    check_joined();
    end_pass();
    capture_->trace.loops.push_back(
        {.begin = first, .end = static_cast<std::uint32_t>(capture_->trace.nodes.size())});
    capture_->counters.push_back(counter);
    begin_part(false);
  }

  void copy(Tensor dst, Tensor src) override {
    MUO_CHECK(dst && src && dst.numel() == src.numel() && dst.dtype == src.dtype, "copy of ",
              src.shape.text(), " ", name_of(src.dtype), " to ", dst.shape.text(), " ",
              name_of(dst.dtype));
    MUO_CHECK(!overlap(dst, src), "a copy of ", src.bytes(),
              " bytes whose source and destination overlap");
    const auto run = [dst, src] {
      std::memcpy(dst.data, src.data, static_cast<std::size_t>(dst.bytes()));
    };
    // Without a HostTask, which would allocate: batches are copied between replays.
    if (runs_now("copy")) return run();
    const std::array<Access, 2> accesses = {access_of(dst, true), access_of(src, false)};
    enqueue_host("copy", accesses, run);
  }

  void zero(Tensor dst) override {
    MUO_CHECK(dst, "no tensor to zero");
    const std::array<Access, 1> accesses = {access_of(dst, true)};
    enqueue_host("zero", accesses,
                 [dst] { std::memset(dst.data, 0, static_cast<std::size_t>(dst.bytes())); });
  }

  void enqueue_host(std::string_view name, std::span<const Access> accesses,
                    HostTask task) override {
    if (before_next_)
      task = [before = std::exchange(before_next_, {}), then = std::move(task)] {
        before();
        then();
      };
    if (runs_now(name)) return task();
    std::sort(frontier_.begin(), frontier_.end());
    frontier_.erase(std::unique(frontier_.begin(), frontier_.end()), frontier_.end());
    auto& nodes = capture_->trace.nodes;
    const auto node = static_cast<std::uint32_t>(nodes.size());
    nodes.push_back({.name = std::string(name),
                     .stream = index_,
                     .after = std::exchange(frontier_, {node}),
                     .accesses = {accesses.begin(), accesses.end()},
                     .range = capture_->range()});
    capture_->tasks.push_back(std::move(task));
  }

  void before_next(const HostTask& task) override { before_next_ = task; }

  void note_cost(const Cost& cost) override {
    if (capturing()) capture_->trace.nodes.back().cost = cost;
  }

  [[nodiscard]] NativeStream native() const override { return nullptr; }
  [[nodiscard]] bool is_host() const override { return true; }

 private:
  class Closing {
   public:
    Closing(Capture& capture, HostDeviceState& device) : capture_(capture), device_(device) {
      device_.capturing = true;
    }
    ~Closing() {
      capture_.open = false;
      device_.capturing = false;
    }
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;

   private:
    Capture& capture_;
    HostDeviceState& device_;
  };

  [[nodiscard]] bool capturing() const {
    return capture_ && capture_->open && capture_->part == part_;
  }
  void enter(std::shared_ptr<Capture> capture) {
    if (capture_ != capture) {
      index_ = static_cast<int>(capture->trace.streams.size());
      capture->trace.streams.push_back(priority_);
    }
    capture_ = std::move(capture);
    part_ = capture_->part;
    frontier_.clear();
  }
  // Every branch must be joined to this stream, which alone goes on in the new part.
  void begin_part(bool in_loop) {
    check_joined();
    part_ = ++capture_->part;
    capture_->part_begin = frontier_.empty() ? 0 : frontier_.front();
    capture_->in_loop = in_loop;
  }
  void check_outside_capture(std::string_view what) const {
    MUO_CHECK(!device_->capturing, what, " during a capture");
  }
  void check_can_run(std::string_view what) const {
    MUO_CHECK(!device_->options.trace_only, "'", what, "' on a trace-only device");
  }

  // True if work enqueued here runs immediately; false if it becomes a node.
  [[nodiscard]] bool runs_now(std::string_view what) const {
    if (capturing()) return false;
    MUO_CHECK(!device_->capturing, "'", what,
              "' on a stream that is not part of the capture in progress");
    check_can_run(what);
    return true;
  }

  // The rule behind cudaErrorStreamCaptureUnjoined: every branch must be joined to this stream.
  void check_joined() const {
    const auto& nodes = capture_->trace.nodes;
    std::vector<bool> has_successor(nodes.size(), false);
    for (const GraphTrace::Node& node : nodes)
      for (const std::uint32_t i : node.after)
        has_successor[i] = true;
    for (const std::uint32_t i : frontier_)
      has_successor[i] = true;
    for (std::size_t i = capture_->part_begin; i < nodes.size(); ++i)
      MUO_CHECK(has_successor[i], "the branch that ends in '", nodes[i].name, "' on stream ",
                nodes[i].stream, " is not joined to the captured stream");
  }

  std::shared_ptr<HostDeviceState> device_;
  const StreamPriority priority_;
  std::shared_ptr<Capture> capture_;
  int part_ = 0;   // of capture_ that this stream joined
  int index_ = 0;  // of this stream in capture_
  HostTask before_next_;
  std::vector<std::uint32_t> frontier_;  // predecessors of the next node on this stream
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(std::shared_ptr<HostDeviceState> device,
                                         StreamPriority priority) {
  return std::make_unique<HostStream>(std::move(device), priority);
}
std::unique_ptr<Event> make_host_event() { return std::make_unique<HostEvent>(); }

}  // namespace muo
