#include "runtime/host/host_stream.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/capture_trace.h"
#include "runtime/graph_trace.h"
#include "runtime/host/host_graph.h"
#include "runtime/memory/arena.h"
#include "runtime/profile_range.h"

namespace muo {
namespace {

struct Capture final : CaptureTrace {
  std::vector<HostTask> tasks;
  std::vector<LoopCounter> counters;  // of trace.loops
};

class HostEvent final : public Event {
 public:
  // Work runs immediately, so an event recorded outside a capture has always completed.
  void synchronize() override {
    MUO_CHECK(!point.capture, "synchronising with an event that was recorded in a capture");
  }

  bool recorded = false;
  TracePoint point;
};

bool overlap(const Tensor& a, const Tensor& b) {
  return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

class HostStream final : public Stream {
 public:
  HostStream(std::shared_ptr<HostDeviceState> device, StreamPriority priority)
      : device_(std::move(device)), traced_(priority) {}

  void record(Event& event) override {
    auto& host = dynamic_cast<HostEvent&>(event);
    host.recorded = true;
    host.point = traced_.point();
  }

  void wait(Event& event) override {
    auto& host = dynamic_cast<HostEvent&>(event);
    if (host.point.capture) return traced_.wait(host.point);  // joins the capture, as in CUDA
    MUO_CHECK(!traced_.is_capturing(),
              host.recorded ? "a capture waits for an event that was recorded outside it"
                            : "a capture waits for an event that was never recorded");
    // Outside of captures work runs immediately: nothing to wait for.
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
    traced_.enter(mine);
    {
      const ProfileRange::Named named;
      body();
    }
    traced_.check_joined();
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
    begin();
    traced_.loop(body, end_pass);
    current().counters.push_back(counter);
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
    traced_.add(name, accesses);
    current().tasks.push_back(std::move(task));
  }

  void before_next(const HostTask& task) override { before_next_ = task; }

  void note_cost(const Cost& cost) override {
    if (traced_.is_capturing()) traced_.note_cost(cost);
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

  [[nodiscard]] Capture& current() const { return static_cast<Capture&>(traced_.capture()); }
  void check_outside_capture(std::string_view what) const {
    MUO_CHECK(!device_->capturing, what, " during a capture");
  }
  void check_can_run(std::string_view what) const {
    MUO_CHECK(!device_->options.trace_only, "'", what, "' on a trace-only device");
  }

  // True if work enqueued here runs immediately; false if it becomes a node.
  [[nodiscard]] bool runs_now(std::string_view what) const {
    if (traced_.is_capturing()) return false;
    MUO_CHECK(!device_->capturing, "'", what,
              "' on a stream that is not part of the capture in progress");
    check_can_run(what);
    return true;
  }

  std::shared_ptr<HostDeviceState> device_;
  TracedStream traced_;
  HostTask before_next_;
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(std::shared_ptr<HostDeviceState> device,
                                         StreamPriority priority) {
  return std::make_unique<HostStream>(std::move(device), priority);
}
std::unique_ptr<Event> make_host_event() { return std::make_unique<HostEvent>(); }

}  // namespace muo
