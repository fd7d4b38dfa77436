// A backend with one planted fault, for tests of failures: the host's devices
// (MUO_FAULT_BACKEND=host) or those of the SIMT tier (simt), which it decorates.
// MUO_FAULT=KIND:RANK:STEP:CALL:N:PHASE triggers when the rank makes the call for the Nth time
// (from 1) in that step (-1: before the first) and in that phase of rank_progress.h (empty: any).
// KIND is
//   throw    throws an Error
//   memory   throws std::bad_alloc
//   device   fails as CUDA does: this call and all later calls on the rank's device fail
//   pause    returns after MUO_FAULT_PAUSE seconds
//   hang     never returns; creates MUO_FAULT_FILE, if set, when it begins
// On the tier the call "collective" is the GPU's, at its execution, and KIND is one of the last
// three.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"
#include "runtime/plugin.h"
#include "runtime/rank_progress.h"
#include "stand_ins/launches.h"

namespace muo {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread sets variables
  return text == nullptr ? "" : text;
}

struct Fault {
  std::string kind, call, phase;
  int rank = -1;
  std::int64_t step = -1;
  int count = 1;
};

Fault parse_fault(const std::string& text) {
  std::array<std::string, 6> fields;
  std::istringstream in(text);
  for (std::string& field : fields)
    std::getline(in, field, ':');
  if (text.empty()) return {};
  return {.kind = fields[0],
          .call = fields[3],
          .phase = fields[5],
          .rank = std::stoi(fields[1]),
          .step = std::stoll(fields[2]),
          .count = std::stoi(fields[4])};
}

// Counts one rank's calls and triggers the fault.
class Trap {
 public:
  explicit Trap(int rank) : rank_(rank) {}

  // Called on the rank's own thread.
  void call(std::string_view name) {
    if (lost_) fail_as_cuda(name);
    if (triggers(name, here())) trigger(name);
  }
  [[nodiscard]] bool is_lost() const { return lost_; }
  // Work that is enqueued on the stream from now on belongs to the current step and phase.
  void mark(Stream& stream) {
    stand_in::enqueue(stream.native(), "a mark", {}, [this, now = here()] {
      const std::lock_guard lock(mutex_);
      on_gpu_ = now;
    });
  }
  // Called on a thread of the GPU, where exceptions cannot be thrown.
  void call_on_gpu(std::string_view name, NativeStream stream) {
    const RankProgress::View now = [&] {
      const std::lock_guard lock(mutex_);
      return on_gpu_;
    }();
    if (!triggers(name, now)) return;
    if (fault().kind == "device")
      stand_in::lose_gpu(stream);
    else
      trigger(name);
  }

 private:
  static const Fault& fault() {
    static const Fault planted = parse_fault(variable("MUO_FAULT"));
    return planted;
  }
  static RankProgress::View here() { return RankProgress::current()->view(); }
  bool triggers(std::string_view name, const RankProgress::View& now) {
    if (rank_ != fault().rank || name != fault().call) return false;
    if (now.step != fault().step || (!fault().phase.empty() && fault().phase != now.phase))
      return false;
    return ++seen_ == fault().count;
  }
  void trigger(std::string_view name) {
    const Fault& fault = Trap::fault();
    if (fault.kind == "memory") throw std::bad_alloc();
    if (fault.kind == "device") {
      lost_ = true;
      fail_as_cuda(name);
    }
    if (fault.kind == "pause")
      return std::this_thread::sleep_for(
          std::chrono::seconds(std::stoi(variable("MUO_FAULT_PAUSE"))));
    if (const std::string file = variable("MUO_FAULT_FILE"); !file.empty()) std::ofstream{file};
    while (fault.kind == "hang")
      std::this_thread::sleep_for(std::chrono::seconds(1));
    throw Error("planted failure");
  }
  [[noreturn]] static void fail_as_cuda(std::string_view name) {
    throw Error(
        concat(name, ": cudaErrorIllegalAddress (an illegal memory access was encountered)"));
  }

  const int rank_;
  std::atomic<int> seen_ = 0;
  bool lost_ = false;
  std::mutex mutex_;
  RankProgress::View on_gpu_;
};

class FaultyEvent final : public Event {
 public:
  FaultyEvent(std::unique_ptr<Event> event, Trap& trap) : event_(std::move(event)), trap_(trap) {}
  void synchronize() override {
    trap_.call("event");
    event_->synchronize();
  }
  [[nodiscard]] Event& inner() const { return *event_; }

 private:
  std::unique_ptr<Event> event_;
  Trap& trap_;
};

Event& inner(Event& event) { return dynamic_cast<FaultyEvent&>(event).inner(); }

class FaultyStream final : public Stream {
 public:
  FaultyStream(std::unique_ptr<Stream> stream, Trap& trap)
      : stream_(std::move(stream)), trap_(trap) {}

  void record(Event& event) override { stream_->record(inner(event)); }
  void wait(Event& event) override { stream_->wait(inner(event)); }
  void synchronize() override {
    if (trap_.is_lost()) stream_->synchronize();  // nothing runs on a lost GPU
    trap_.call("synchronize");
    stream_->synchronize();
  }
  void launch(Graph& graph) override {
    trap_.call("launch");
    if (!is_host()) trap_.mark(*stream_);
    stream_->launch(graph);
  }
  [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    return stream_->capture([&] {
      trap_.call("capture");
      body();
    });
  }
  void loop(const LoopCounter& counter, std::int64_t count,
            const std::function<void()>& body) override {
    trap_.call("loop");
    stream_->loop(counter, count, body);
  }
  void copy(Tensor dst, Tensor src) override {
    trap_.call("copy");
    stream_->copy(dst, src);
  }
  void zero(Tensor dst) override {
    trap_.call("zero");
    stream_->zero(dst);
  }
  void enqueue_host(std::string_view name, std::span<const Access> accesses,
                    HostTask task) override {
    stream_->enqueue_host(name, accesses, std::move(task));
  }
  [[nodiscard]] NativeStream native() const override { return stream_->native(); }
  [[nodiscard]] bool is_host() const override { return stream_->is_host(); }

 private:
  std::unique_ptr<Stream> stream_;
  Trap& trap_;
};

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> device, std::shared_ptr<Trap> trap)
      : trap_(std::move(trap)), device_(std::move(device)) {}
  [[nodiscard]] Device& inner() const { return *device_; }
  [[nodiscard]] const std::shared_ptr<Trap>& trap() const { return trap_; }

  [[nodiscard]] int rank() const override { return device_->rank(); }
  void bind_thread() override { device_->bind_thread(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::int64_t bytes,
                                                 std::string_view what) override {
    trap_->call("allocate");
    return device_->allocate(bytes, what);
  }
  [[nodiscard]] std::unique_ptr<Buffer> allocate_pinned(std::int64_t bytes,
                                                        std::string_view what) override {
    trap_->call("allocate_pinned");
    return device_->allocate_pinned(bytes, what);
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return std::make_unique<FaultyStream>(device_->make_stream(priority), *trap_);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    return std::make_unique<FaultyEvent>(device_->make_event(), *trap_);
  }
  void seal() override { device_->seal(); }
  [[nodiscard]] std::int64_t allocations() const override { return device_->allocations(); }

 private:
  std::shared_ptr<Trap> trap_;
  std::unique_ptr<Device> device_;
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> communicator, std::shared_ptr<Trap> trap)
      : communicator_(std::move(communicator)), trap_(std::move(trap)) {}

  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int world() const override { return communicator_->world(); }
  void reduce_scatter(Stream& stream, Tag tag, Tensor shard, Tensor full) override {
    before(stream);
    communicator_->reduce_scatter(stream, tag, shard, full);
  }
  void all_gather(Stream& stream, Tag tag, Tensor full, Tensor shard) override {
    before(stream);
    communicator_->all_gather(stream, tag, full, shard);
  }
  void all_gather_v(Stream& stream, Tag tag, Tensor full, Tensor shard,
                    std::span<const std::int64_t> counts) override {
    before(stream);
    communicator_->all_gather_v(stream, tag, full, shard, counts);
  }
  void all_reduce(Stream& stream, Tag tag, Tensor out, Tensor in) override {
    before(stream);
    communicator_->all_reduce(stream, tag, out, in);
  }
  void reduce(Stream& stream, Tag tag, Tensor out, Tensor in, int root) override {
    before(stream);
    communicator_->reduce(stream, tag, out, in, root);
  }
  void broadcast(Stream& stream, Tag tag, Tensor values, int root) override {
    before(stream);
    communicator_->broadcast(stream, tag, values, root);
  }
  void gather(Stream& stream, Tag tag, Tensor full, Tensor part,
              std::span<const std::int64_t> counts, int root) override {
    before(stream);
    communicator_->gather(stream, tag, full, part, counts, root);
  }
  void scatter(Stream& stream, Tag tag, Tensor part, Tensor full,
               std::span<const std::int64_t> counts, int root) override {
    before(stream);
    communicator_->scatter(stream, tag, part, full, counts, root);
  }
  void all_to_all(Stream& stream, Tag tag, Tensor out, Tensor in) override {
    before(stream);
    communicator_->all_to_all(stream, tag, out, in);
  }
  void mute(bool muted) override { communicator_->mute(muted); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  void check() const override {
    trap_->call("check");
    communicator_->check();
  }

 private:
  // Triggers when the device executes the collective: in a capture, at the replay.
  void before(Stream& stream) {
    if (stream.is_host())
      return stream.enqueue_host("a trap", {}, [trap = trap_] { trap->call("collective"); });
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    static_cast<void>(cudaStreamIsCapturing(stream.native(), &capture));
    if (capture == cudaStreamCaptureStatusNone) trap_->mark(stream);
    stand_in::enqueue(stream.native(), "a trap", {}, [trap = trap_, native = stream.native()] {
      trap->call_on_gpu("collective", native);
    });
  }

  std::unique_ptr<Communicator> communicator_;
  std::shared_ptr<Trap> trap_;
};

class FaultyGroup final : public CommunicatorGroup {
 public:
  explicit FaultyGroup(std::unique_ptr<CommunicatorGroup> group) : group_(std::move(group)) {}
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    auto& faulty = dynamic_cast<FaultyDevice&>(device);
    faulty.trap()->call("join");
    return std::make_unique<FaultyCommunicator>(group_->join(faulty.inner()), faulty.trap());
  }
  void abort() noexcept override { group_->abort(); }

 private:
  std::unique_ptr<CommunicatorGroup> group_;
};

// The backend to decorate; null: the host.
const BackendPlugin* decorated() {
  static const BackendPlugin* const plugin = [] {
    const LoadedPlugin loaded =
        variable("MUO_FAULT_BACKEND") == "simt" ? load_plugin("muograph_simt") : LoadedPlugin{};
    if (!loaded.missing.empty()) throw Error(loaded.missing);
    return loaded.plugin;
  }();
  return plugin;
}

const BackendPlugin plugin{
    .missing =
        [] {
          static_cast<void>(decorated());  // loads the plug-in, before there are threads
          return std::string();
        },
    .device_count = [] { return 64; },
    .name = [](int /*index*/) { return std::string("faulty"); },
    .describe = [](int /*index*/) { return std::string("devices with a planted fault"); },
    .available_memory = [](int /*index*/) { return std::int64_t{1} << 40; },
    .total_memory = [](int /*index*/) { return std::int64_t{1} << 40; },
    .no_peer_access = [](int /*count*/) { return std::string(); },
    .make_device = [](int rank, int index) -> std::unique_ptr<Device> {
      auto trap = std::make_shared<Trap>(rank);
      trap->call("make_device");
      std::unique_ptr<Device> device = decorated() == nullptr
                                           ? std::make_unique<HostDevice>(rank)
                                           : decorated()->make_device(rank, index);
      return std::make_unique<FaultyDevice>(std::move(device), std::move(trap));
    },
    .make_communicators =
        [](CommunicatorKind kind, const CommunicatorMembers& members,
           std::chrono::milliseconds deadline) -> std::unique_ptr<CommunicatorGroup> {
      return std::make_unique<FaultyGroup>(
          decorated() == nullptr ? make_host_communicators(members.world, members.rendezvous)
                                 : decorated()->make_communicators(kind, members, deadline));
    }};

}  // namespace
}  // namespace muo

extern "C" const muo::BackendPlugin* muograph_backend_plugin() { return &muo::plugin; }
