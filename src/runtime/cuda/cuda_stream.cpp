#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/loop_kernels.h"
#include "runtime/cuda/stream_context.h"

namespace muo {
namespace {

// cuBLAS recommends 32 MiB for Hopper. Weight gradients, computed on streams of normal priority,
// sum over all tokens: splitting these sums over a whole GPU needs more.
constexpr std::int64_t gemm_workspace(StreamPriority priority) {
  return std::int64_t{priority == StreamPriority::kNormal ? 128 : 32} << 20;
}

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int ordinal) {
    MUO_CUDA_CHECK(cudaSetDevice(ordinal));
    MUO_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CudaEvent() override { static_cast<void>(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void synchronize() override { MUO_CUDA_CHECK(cudaEventSynchronize(event_)); }
  [[nodiscard]] cudaEvent_t get() const { return event_; }

  // Where it was last recorded: the stream, and the number of the capture, 0 outside of a capture.
  cudaStream_t stream = nullptr;
  std::int64_t capture = 0;

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  // Takes ownership of `graph`.
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : graph_(graph) {
    MUO_CUDA_CHECK(
        cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagUseNodePriority));
    MUO_CUDA_CHECK(cudaGraphUpload(executable_, stream));
  }
  ~CudaGraph() override {
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
    static_cast<void>(cudaGraphDestroy(graph_));
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  [[nodiscard]] const GraphTrace& trace() const override {
    MUO_FAIL("a graph of the cuda backend has no trace: memory is planned on a tracing device");
  }
  void write_dot(const std::string& path) const override {
    MUO_CUDA_CHECK(cudaGraphDebugDotPrint(graph_, path.c_str(),
                                          cudaGraphDebugDotFlagsKernelNodeParams |
                                              cudaGraphDebugDotFlagsKernelNodeAttributes),
                   "to ", path);
  }
  [[nodiscard]] cudaGraphExec_t executable() const { return executable_; }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
};

// A capture in progress. Unless finish() is reached, the destructor ends it, so that the stream
// remains usable after the body throws.
class Capture {
 public:
  // `current` points to this object during its lifetime.
  Capture(cudaStream_t stream, CudaDeviceState& device, Capture*& current)
      : stream_(stream), device_(device), current_(current) {
    MUO_CUDA_CHECK(cudaStreamBeginCapture(stream, kMode));
    device_.capturing = true;
    ++device_.captures;
    current_ = this;
  }
  ~Capture() {
    current_ = nullptr;
    cudaGraph_t graph = graph_;
    if (device_.capturing) {
      device_.capturing = false;
      cudaGraph_t part = nullptr;
      static_cast<void>(cudaStreamEndCapture(stream_, &part));
      static_cast<void>(cudaGetLastError());
      if (!in_loop_) graph = part;  // a loop's graph belongs to its node; null: lost with the part
    }
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  [[nodiscard]] cudaGraph_t finish() {
    device_.capturing = false;
    const cudaGraph_t graph = end_part();
    graph_ = nullptr;
    return graph;
  }

  // The part so far becomes a graph, the loop's node is added to it, `body` is captured into that
  // node's own graph, and what follows is captured behind the node. As each part is a capture, it
  // releases all other streams.
  void loop(const LoopCounter& counter, const std::function<void()>& body) {
    MUO_CHECK(!in_loop_, "a loop within a loop");
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    MUO_CUDA_CHECK(
        cudaStreamGetCaptureInfo(stream_, &state, nullptr, &graph, nullptr, nullptr, nullptr));
    cudaGraphNodeParams loop = {};
    loop.type = cudaGraphNodeTypeConditional;
    loop.conditional.type = cudaGraphCondTypeWhile;
    loop.conditional.size = 1;
    MUO_CUDA_CHECK(cudaGraphConditionalHandleCreate(&loop.conditional.handle, graph, 0, 0));
    cuda::begin_loop(stream_, counter, loop.conditional.handle);
    const cudaGraphNode_t* before = nullptr;
    std::size_t count = 0;
    MUO_CUDA_CHECK(
        cudaStreamGetCaptureInfo(stream_, &state, nullptr, &graph, &before, nullptr, &count));
    const std::vector<cudaGraphNode_t> last(before, before + count);
    graph_ = end_part();
    cudaGraphNode_t node = nullptr;
    MUO_CUDA_CHECK(cudaGraphAddNode(&node, graph_, last.data(), nullptr, last.size(), &loop),
                   "for the loop over a step's micro-steps");
    begin_part(loop.conditional.phGraph_out[0], nullptr);
    in_loop_ = true;
    body();
    cuda::end_pass(stream_, counter, loop.conditional.handle);
    static_cast<void>(end_part());
    in_loop_ = false;
    begin_part(graph_, &node);
  }

 private:
  // Thread-local: threads of other devices may allocate and query meanwhile.
  static constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeThreadLocal;

  void begin_part(cudaGraph_t graph, const cudaGraphNode_t* after) {
    MUO_CUDA_CHECK(cudaStreamBeginCaptureToGraph(stream_, graph, after, nullptr,
                                                 after == nullptr ? 0 : 1, kMode));
    device_.capturing = true;
    ++device_.captures;
  }
  [[nodiscard]] cudaGraph_t end_part() {
    device_.capturing = false;
    cudaGraph_t graph = nullptr;
    MUO_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph),
                   "(a branch was not joined, or a call cannot be captured)");
    return graph;
  }

  cudaStream_t stream_;
  CudaDeviceState& device_;
  Capture*& current_;
  cudaGraph_t graph_ = nullptr;  // of the ended parts, once there is a loop
  bool in_loop_ = false;
};

class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaDeviceState> device, StreamPriority priority)
      : device_(std::move(device)) {
    MUO_CUDA_CHECK(cudaSetDevice(device_->ordinal));
    int least = 0;
    int greatest = 0;  // numerically the smaller one
    MUO_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int middle = (least + greatest) / 2;
    const int level = priority == StreamPriority::kHigh  ? greatest
                      : priority == StreamPriority::kLow ? least
                                                         : middle;
    MUO_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, level));
    const std::int64_t workspace = gemm_workspace(priority);
    const auto scratch = static_cast<std::size_t>(
        workspace + cuda::kMaxPartials * static_cast<std::int64_t>(sizeof(double)));
    MUO_CUDA_CHECK(cudaMalloc(&scratch_, scratch), "for the scratch of a stream, ", scratch,
                   " bytes");
    auto* bytes = static_cast<std::byte*>(scratch_);
    cuda::add_stream_context(stream_, {.device = device_->ordinal,
                                       .partials = reinterpret_cast<double*>(bytes + workspace),
                                       .gemm_workspace = bytes,
                                       .gemm_workspace_bytes = workspace});
  }
  ~CudaStream() override {
    static_cast<void>(cudaSetDevice(device_->ordinal));
    static_cast<void>(cudaStreamSynchronize(stream_));
    cuda::remove_stream_context(stream_);
    static_cast<void>(cudaFree(scratch_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void record(Event& event) override {
    auto& own = dynamic_cast<CudaEvent&>(event);
    MUO_CUDA_CHECK(cudaEventRecord(own.get(), stream_));
    own.stream = stream_;
    own.capture = device_->capturing ? device_->captures.load() : 0;
  }
  void wait(Event& event) override {
    auto& own = dynamic_cast<CudaEvent&>(event);
    // Within one branch, give a node no edge except to its predecessor: a driver may put a node
    // with several edges on another queue.
    if (device_->capturing && own.stream == stream_ && own.capture == device_->captures) return;
    MUO_CUDA_CHECK(cudaStreamWaitEvent(stream_, own.get()));
  }
  void synchronize() override {
    MUO_CHECK(!device_->capturing, "synchronising during a capture");
    MUO_CUDA_CHECK(cudaStreamSynchronize(stream_), "on rank ", device_->rank);
  }
  void launch(Graph& graph) override {
    MUO_CHECK(!device_->capturing, "launching a graph during a capture");
    MUO_CUDA_CHECK(cudaGraphLaunch(dynamic_cast<CudaGraph&>(graph).executable(), stream_),
                   "on rank ", device_->rank);
  }
  [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    MUO_CHECK(!device_->capturing, "a device makes one capture at a time");
    Capture capture(stream_, *device_, capture_);
    body();
    return std::make_unique<CudaGraph>(capture.finish(), stream_);
  }
  void loop(const LoopCounter& counter, std::int64_t count,
            const std::function<void()>& body) override {
    if (device_->capturing) {
      MUO_CHECK(capture_ != nullptr, "a loop on a stream other than the captured one");
      return capture_->loop(counter, body);
    }
    cuda::begin_loop(stream_, counter, std::nullopt);
    for (std::int64_t pass = 0; pass < count; ++pass) {
      body();
      cuda::end_pass(stream_, counter, std::nullopt);
    }
  }
  void copy(Tensor dst, Tensor src) override {
    MUO_CHECK(dst.numel() == src.numel() && dst.dtype == src.dtype, "copying ", src.shape.text(),
              " to ", dst.shape.text());
    MUO_CHECK(dst.data + dst.bytes() <= src.data || src.data + src.bytes() <= dst.data,
              "a copy of ", src.bytes(), " bytes whose source and destination overlap");
    if (dst.bytes() == 0) return;
    MUO_CUDA_CHECK(cudaMemcpyAsync(dst.data, src.data, static_cast<std::size_t>(dst.bytes()),
                                   cudaMemcpyDefault, stream_));
  }
  void zero(Tensor dst) override {
    if (dst.bytes() == 0) return;
    MUO_CUDA_CHECK(cudaMemsetAsync(dst.data, 0, static_cast<std::size_t>(dst.bytes()), stream_));
  }
  void enqueue_host(std::string_view name, std::span<const Access> /*accesses*/,
                    HostTask /*task*/) override {
    MUO_FAIL("'", name, "' is a host task; a GPU stream cannot run it");
  }
  [[nodiscard]] NativeStream native() const override { return stream_; }
  [[nodiscard]] bool is_host() const override { return false; }

 private:
  std::shared_ptr<CudaDeviceState> device_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  Capture* capture_ = nullptr;  // in progress, begun by this stream
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaDeviceState> device,
                                         StreamPriority priority) {
  return std::make_unique<CudaStream>(std::move(device), priority);
}

std::unique_ptr<Event> make_cuda_event(const CudaDeviceState& device) {
  return std::make_unique<CudaEvent>(device.ordinal);
}

}  // namespace muo
