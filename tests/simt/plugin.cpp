// The backend of tests: CUDA's kernels, run by the emulator, on a host device's memory and streams.

#include "runtime/plugin.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "runtime/cuda/nccl_communicator.h"
#include "runtime/cuda/peer_communicator.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/host/host_device.h"
#include "simt/emulator/launch.h"

namespace muo::simt {
namespace {

bool is_set(const char* variable) {
  return std::getenv(variable) != nullptr;  // NOLINT(concurrency-mt-unsafe): nobody sets any
}

// As CUDA does, it knows whether it captures: while a stream of its device does.
struct SimtNativeStream : CUstream_st {
  bool& capturing;
};

class SimtStream final : public Stream {
 public:
  SimtStream(std::unique_ptr<Stream> host, std::shared_ptr<bool> capturing)
      : host_(std::move(host)),
        capturing_(std::move(capturing)),
        native_{{*host_}, *capturing_},
        partials_(std::make_unique_for_overwrite<double[]>(cuda::kMostPartials)) {
    // NaNs take a millisecond: on request. Without, it is what the allocator gives.
    if (is_set("SIMT_NAN_SCRATCH"))
      std::fill_n(partials_.get(), cuda::kMostPartials, std::numeric_limits<double>::quiet_NaN());
    cuda::add_stream_context(&native_, {.partials = partials_.get()});
  }
  ~SimtStream() override { cuda::remove_stream_context(&native_); }
  SimtStream(const SimtStream&) = delete;
  SimtStream& operator=(const SimtStream&) = delete;

  void record(Event& event) override { host_->record(event); }
  void wait(Event& event) override { host_->wait(event); }
  void synchronize() override { host_->synchronize(); }
  // A replay that a failure of the group cuts short ends in silence, as kernels do.
  void launch(Graph& graph) override {
    try {
      host_->launch(graph);
    } catch (const PeerFailed&) {
      return;
    }
  }
  [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    return host_->capture([&] {
      *capturing_ = true;
      const auto end = [](bool* capturing) { *capturing = false; };
      const std::unique_ptr<bool, decltype(end)> guard(capturing_.get(), end);
      body();
    });
  }
  void copy(Tensor dst, Tensor src) override { host_->copy(dst, src); }
  void zero(Tensor dst) override { host_->zero(dst); }
  void enqueue_host(std::string_view name, std::span<const Access> /*accesses*/,
                    HostTask /*task*/) override {
    MUO_FAIL("'", name, "' is work for the host, and this stream is to behave as a GPU's");
  }
  [[nodiscard]] NativeStream native() const override { return &native_; }
  [[nodiscard]] bool is_host() const override { return false; }

 private:
  std::unique_ptr<Stream> host_;
  std::shared_ptr<bool> capturing_;  // the device's
  mutable SimtNativeStream native_;
  std::unique_ptr<double[]> partials_;
};

class SimtDevice final : public Device {
 public:
  SimtDevice(int rank, int index) : host_(rank), index_(index) {}
  [[nodiscard]] int index() const { return index_; }

  [[nodiscard]] int rank() const override { return host_.rank(); }
  void bind_thread() override { host_.bind_thread(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::int64_t bytes,
                                                 std::string_view what) override {
    return host_.allocate(bytes, what);
  }
  [[nodiscard]] std::unique_ptr<Buffer> allocate_pinned(std::int64_t bytes,
                                                        std::string_view what) override {
    return host_.allocate_pinned(bytes, what);
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return std::make_unique<SimtStream>(host_.make_stream(priority), capturing_);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return host_.make_event(); }
  void seal() override { host_.seal(); }
  [[nodiscard]] std::int64_t allocations() const override { return host_.allocations(); }

 private:
  HostDevice host_;
  int index_;
  std::shared_ptr<bool> capturing_ = std::make_shared<bool>(false);
};

// Of each GPU; a test may give them less. Nobody else uses any of it.
std::int64_t gpu_memory(int /*index*/) {
  const char* bytes = std::getenv("SIMT_GPU_MEMORY");  // NOLINT(concurrency-mt-unsafe)
  return bytes == nullptr ? std::int64_t{1} << 40 : std::stoll(bytes);
}

// Memory is one address space and every GPU is everybody's peer; a test may say that they are not.
std::string no_peer_access(int count) {
  return !is_set("SIMT_GPUS_APART") || count < 2 ? "" : "GPU 0 cannot access the memory of GPU 1";
}

std::unique_ptr<CommunicatorGroup> make_communicators(CommunicatorKind kind, int world,
                                                      Rendezvous& rendezvous,
                                                      std::chrono::milliseconds deadline) {
  if (kind == CommunicatorKind::kNccl)
    return nccl::make_nccl_communicators(
        {.library = MUO_NCCL_STAND_IN,
         .is_capturing =
             [](NativeStream stream) { return static_cast<SimtNativeStream*>(stream)->capturing; },
         .gpu_of =
             [](const Device& device) { return dynamic_cast<const SimtDevice&>(device).index(); },
         .use_gpu = [](int /*gpu*/) {},
         .timeout = std::chrono::milliseconds(500)},
        world, rendezvous);
  if (kind != CommunicatorKind::kPeer)
    throw InputError("the SIMT tier has GPUs' communicators only");
  return make_peer_communicators(world, rendezvous,
                                 {.gpu = [] { return 0; },
                                  .connect = [](int /*rank*/, std::span<const int> /*gpus*/) {},
                                  .deadline = deadline,
                                  .threads = 64});  // a fiber is dearer than a thread
}

const BackendPlugin plugin{
    .missing = [] { return std::string(); },
    .device_count = [] { return 64; },
    .name = [](int /*index*/) { return std::string("the CPU"); },
    .describe = [](int /*index*/) { return std::string("CUDA threads as fibers on the CPU"); },
    .available_memory = gpu_memory,
    .total_memory = gpu_memory,
    .no_peer_access = no_peer_access,
    .make_device = [](int rank, int index) -> std::unique_ptr<Device> {
      return std::make_unique<SimtDevice>(rank, index);
    },
    .make_communicators = make_communicators};

}  // namespace
}  // namespace muo::simt

extern "C" const muo::BackendPlugin* muograph_backend_plugin() { return &muo::simt::plugin; }
