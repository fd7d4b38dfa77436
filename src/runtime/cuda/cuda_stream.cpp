#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/capture_trace.h"
#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/loop_kernels.h"
#include "runtime/cuda/recorded_graph.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/profile_range.h"

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
  TracePoint point;

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  // Takes ownership of `graph`.
  CudaGraph(cudaGraph_t graph, cudaStream_t stream, GraphTrace trace, cuda::NodeIds ids)
      : Graph(std::move(trace)), graph_(graph) {
    {
      const cuda::NamedNodes naming(ids);
      MUO_CUDA_CHECK(
          cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagUseNodePriority));
    }
    MUO_CUDA_CHECK(cudaGraphUpload(executable_, stream));
    recorded_ = cuda::RecordedGraph::make(std::move(ids), executable_);
  }
  ~CudaGraph() override {
    recorded_.reset();
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
    static_cast<void>(cudaGraphDestroy(graph_));
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  bool observe(NodeObserver* observer) override {
    observer_ = observer;
    return recorded_ != nullptr && recorded_->record(observer != nullptr);
  }
  void show_observed(bool all) override {
    if (recorded_ == nullptr || observer_ == nullptr) return;
    for (const NodeRun& run : recorded_->take(all))
      observer_->ran(run);
  }
  [[nodiscard]] std::int64_t lost_runs() const override { return cuda::RecordedGraph::lost(); }
  void launch(cudaStream_t stream, int rank) {
    const cuda::RecordedGraph::Launching launching(recorded_.get(), launches_++);
    MUO_CUDA_CHECK(cudaGraphLaunch(executable_, stream), "on rank ", rank);
  }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
  std::unique_ptr<cuda::RecordedGraph> recorded_;  // null: nodes are not recorded
  NodeObserver* observer_ = nullptr;
};

// A capture in progress. Unless finish() is reached, the destructor ends it, so that the stream
// remains usable after the body throws.
class Capture {
 public:
  // `current` points to this object during its lifetime.
  Capture(cudaStream_t stream, TracedStream& traced, CudaDeviceState& device, Capture*& current)
      : stream_(stream), traced_(traced), device_(device), current_(current) {
    MUO_CUDA_CHECK(cudaStreamBeginCapture(stream, kMode));
    device_.capturing = true;
    ++device_.captures;
    current_ = this;
    traced_.enter(trace_);
  }
  ~Capture() {
    trace_->open = false;
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
  [[nodiscard]] std::unique_ptr<Graph> finish() {
    device_.capturing = false;
    const cudaGraph_t graph = end_part();
    graph_ = nullptr;
    return std::make_unique<CudaGraph>(graph, stream_, std::move(trace_->trace), std::move(ids_));
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
    const std::array<Access, 2> accesses = {access_of(counter.passes, true, true),
                                            access_of(counter.count, false)};
    cuda::name_next_nodes(traced_.add("begin_loop", accesses));
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
    traced_.loop(body, [&] {
      cuda::name_next_nodes(traced_.add("end_pass", accesses));
      cuda::end_pass(stream_, counter, loop.conditional.handle);
    });
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
  TracedStream& traced_;
  CudaDeviceState& device_;
  Capture*& current_;
  const std::shared_ptr<CaptureTrace> trace_ = std::make_shared<CaptureTrace>();
  cuda::NodeIds ids_;
  const cuda::NamedNodes naming_{ids_};
  const ProfileRange::Named named_;
  cudaGraph_t graph_ = nullptr;  // of the ended parts, once there is a loop
  bool in_loop_ = false;
};

class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaDeviceState> device, StreamPriority priority)
      : device_(std::move(device)), traced_(priority) {
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
    own.point = traced_.point();
  }
  void wait(Event& event) override {
    auto& own = dynamic_cast<CudaEvent&>(event);
    // Within one branch, give a node no edge except to its predecessor: a driver may put a node
    // with several edges on another queue.
    if (device_->capturing && own.stream == stream_ && own.capture == device_->captures) return;
    MUO_CUDA_CHECK(cudaStreamWaitEvent(stream_, own.get()));
    if (own.point.capture != nullptr) traced_.wait(own.point);
  }
  void synchronize() override {
    MUO_CHECK(!device_->capturing, "synchronising during a capture");
    MUO_CUDA_CHECK(cudaStreamSynchronize(stream_), "on rank ", device_->rank);
  }
  void launch(Graph& graph) override {
    MUO_CHECK(!device_->capturing, "launching a graph during a capture");
    dynamic_cast<CudaGraph&>(graph).launch(stream_, device_->rank);
  }
  [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    MUO_CHECK(!device_->capturing, "a device makes one capture at a time");
    Capture capture(stream_, traced_, *device_, capture_);
    body();
    return capture.finish();
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
    const std::array<Access, 2> accesses = {access_of(dst, true), access_of(src, false)};
    static_cast<void>(add_node("copy", accesses));
    if (dst.bytes() == 0) return;
    MUO_CUDA_CHECK(cudaMemcpyAsync(dst.data, src.data, static_cast<std::size_t>(dst.bytes()),
                                   cudaMemcpyDefault, stream_));
  }
  void zero(Tensor dst) override {
    const std::array<Access, 1> accesses = {access_of(dst, true)};
    static_cast<void>(add_node("zero", accesses));
    if (dst.bytes() == 0) return;
    MUO_CUDA_CHECK(cudaMemsetAsync(dst.data, 0, static_cast<std::size_t>(dst.bytes()), stream_));
  }
  void enqueue_host(std::string_view name, std::span<const Access> /*accesses*/,
                    HostTask /*task*/) override {
    MUO_FAIL("'", name, "' is a host task; a GPU stream cannot run it");
  }
  bool add_node(std::string_view name, std::span<const Access> accesses) override {
    if (!traced_.is_capturing()) return false;
    cuda::name_next_nodes(traced_.add(name, accesses));
    return true;
  }
  void note_cost(const Cost& cost) override {
    if (traced_.is_capturing()) traced_.note_cost(cost);
  }
  [[nodiscard]] NativeStream native() const override { return stream_; }
  [[nodiscard]] bool is_host() const override { return false; }

 private:
  std::shared_ptr<CudaDeviceState> device_;
  TracedStream traced_;
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
