#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "stand_ins/world.h"

namespace muo::stand_in {
namespace {

void make_set(std::vector<std::uint64_t>& numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// The numbers of the allocations behind addresses, each once. Inaccessible memory is a fault().
std::vector<std::uint64_t> allocations_of(Gpu& gpu, const std::string& name,
                                          const Addresses& addresses) {
  std::vector<std::uint64_t> out;
  const auto add = [&](const void* address, bool certain) {
    if (address == nullptr) return;
    const Allocation* memory = find(address);
    if (memory == nullptr) {
      if (certain) fault(gpu, name + " gets an address that is not GPU memory");
    } else if (memory->gpu >= 0 && memory->gpu != gpu.index && !gpu.peers.contains(memory->gpu)) {
      fault(gpu, name + " gets memory of GPU " + std::to_string(memory->gpu) + ", which GPU " +
                     std::to_string(gpu.index) + " may not access");
    } else {
      out.push_back(memory->number);
    }
  };
  for (const void* address : addresses.certain)
    add(address, true);
  for (const void* address : addresses.possible)
    add(address, false);
  make_set(out);
  return out;
}

cudaError_t known(cudaStream_t stream) {
  if (world().streams.contains(stream)) return usable(*stream->gpu);
  return stream == nullptr ? wrong(cudaErrorStreamCaptureImplicit,
                                   "work on the default stream, which waits for all others")
                           : wrong(cudaErrorInvalidResourceHandle, "a stream that does not exist");
}
cudaError_t known(cudaEvent_t event) {
  return world().events.contains(event)
             ? usable(*event->gpu)
             : wrong(cudaErrorInvalidResourceHandle, "an event that does not exist");
}

bool is_under_way(const CapturePtr& capture) { return world().captures.contains(capture); }

cudaError_t spoil(const CapturePtr& capture, cudaError_t error, const std::string& what) {
  capture->invalid = true;
  return wrong(error, what);
}

void end(const CapturePtr& capture) {
  World& all = world();
  all.captures.erase(capture);
  for (const cudaStream_t stream : all.streams)
    if (stream->capture == capture) {
      stream->capture = nullptr;
      stream->after.clear();
    }
}

// True if the end of the origin stream depends on every node.
bool is_joined(const Capture& capture) {
  const std::vector<Node>& nodes = capture.graph->nodes;
  std::vector<bool> joined(nodes.size(), false);
  for (const std::size_t last : capture.origin->after)
    joined[last] = true;
  for (std::size_t i = nodes.size(); i-- > 0;)
    if (joined[i])
      for (const std::size_t before : nodes[i].after)
        joined[before] = true;
  return std::ranges::find(joined, false) == joined.end();
}

void unite(std::vector<std::size_t>& nodes, const std::vector<std::size_t>& more) {
  nodes.insert(nodes.end(), more.begin(), more.end());
  make_set(nodes);
}

OperationPtr order(cudaStream_t stream, Operation operation) {
  if (stream->last != nullptr) operation.after.push_back(stream->last);
  stream->last = submit(*stream->gpu, *stream->queue, std::move(operation));
  return stream->last;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

cudaError_t enqueue(Lock& lock, cudaStream_t stream, const std::string& name,
                    const Addresses& addresses, Task task, const void* kernel) {
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  Gpu& gpu = *stream->gpu;
  wait_for_turn(lock, gpu);
  if (kernel != nullptr) {
    const cudaError_t loaded = load(lock, gpu, kernel, name);
    if (loaded != cudaSuccess) return loaded;
  }
  std::vector<std::uint64_t> memory = allocations_of(gpu, name, addresses);
  if (stream->capture != nullptr) {
    if (stream->capture->invalid) return failed(cudaErrorStreamCaptureInvalidated);
    CUgraph_st& graph = *stream->capture->graph;
    graph.add({name, std::move(task), std::move(stream->after), std::move(memory)});
    stream->after = {graph.nodes.size() - 1};
    return cudaSuccess;
  }
  const OperationPtr last =
      order(stream, {.name = name, .task = std::move(task), .memory = std::move(memory)});
  if (world().settings.blocking) wait_for(lock, last);
  return usable(gpu);
}

cudaError_t enqueue(cudaStream_t stream, const char* name, const Addresses& addresses, Task task) {
  Lock lock;
  return enqueue(lock, stream, name, addresses, std::move(task));
}

cudaError_t enqueue_collective(cudaStream_t stream, const char* name, const Addresses& addresses,
                               Task task) {
  Lock lock;
  if (world().streams.contains(stream) && captures_loop(stream))
    return wrong(cudaErrorStreamCaptureUnsupported, std::string(name) + " in a loop");
  return enqueue(lock, stream, name, addresses, std::move(task));
}

cudaError_t launch(cudaStream_t stream, const void* kernel, const Addresses& addresses, Task task) {
  Lock lock;
  World& all = world();
  const auto found = all.kernels.find(kernel);
  if (found == all.kernels.end())
    return wrong(cudaErrorInvalidDeviceFunction, "a kernel that was not registered");
  if (all.streams.contains(stream) && stream->gpu != &current_gpu())
    return wrong(cudaErrorInvalidResourceHandle, found->second + " on another GPU's stream");
  return enqueue(lock, stream, found->second, addresses, std::move(task), kernel);
}

bool captures_loop(cudaStream_t stream) {
  return stream->capture != nullptr && stream->capture->graph->is_body;
}

cudaError_t unsafe(const char* call) {
  const ThreadState& thread = thread_state();
  if (thread.mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool hit = false;
  for (const CapturePtr& capture : world().captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool every =
        thread.mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (capture->mode == cudaStreamCaptureModeRelaxed || !(own || every)) continue;
    capture->invalid = hit = true;
  }
  return hit ? wrong(cudaErrorStreamCaptureUnsupported, std::string(call) + " during a capture")
             : cudaSuccess;
}

}  // namespace muo::stand_in

using namespace muo::stand_in;  // NOLINT(google-build-using-namespace): CUDA's functions are these

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  Lock lock;
  Gpu& gpu = current_gpu();
  if (const cudaError_t error = usable(gpu); error != cudaSuccess) return error;
  int least = 0;
  int greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (flags != cudaStreamNonBlocking || priority > least || priority < greatest)
    return wrong(cudaErrorInvalidValue,
                 "a stream that waits for the default stream, or with an invalid priority");
  wait_for_all(lock, gpu, "cudaStreamCreateWithPriority");
  *stream = new CUstream_st{.gpu = &gpu, .queue = &queue_for_one_more(gpu)};
  world().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  if (stream->capture != nullptr)
    return spoil(stream->capture, cudaErrorStreamCaptureUnsupported,
                 "destroying a stream that captures");
  wait_for_all(lock, *stream->gpu, "cudaStreamDestroy");
  world().streams.erase(stream);
  --stream->queue->users;
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  if (stream->capture != nullptr)
    return spoil(stream->capture, cudaErrorStreamCaptureUnsupported,
                 "synchronising a stream that captures");
  if (const cudaError_t error = unsafe("cudaStreamSynchronize"); error != cudaSuccess) return error;
  Gpu& gpu = *stream->gpu;
  wait_for(lock, stream->last);
  return usable(gpu);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const Lock lock;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  if (const cudaError_t error = known(event); error != cudaSuccess) return error;
  if (event->capture != nullptr) {
    if (!is_under_way(event->capture)) {
      if (stream->capture != nullptr) stream->capture->invalid = true;
      return wrong(cudaErrorCapturedEvent, "waiting for an event of an ended capture");
    }
    if (stream->capture != nullptr && stream->capture != event->capture) {
      stream->capture->invalid = event->capture->invalid = true;
      return wrong(cudaErrorStreamCaptureMerge, "waiting for an event of another capture");
    }
    if (stream->gpu != event->gpu)
      return spoil(event->capture, cudaErrorInvalidValue,
                   "a capture over two GPUs, which the stand-in does not have");
    stream->capture = event->capture;  // the stream joins the capture
    unite(stream->after, event->nodes);
    return cudaSuccess;
  }
  if (event->recorded == nullptr) return cudaSuccess;
  if (stream->capture != nullptr)
    return spoil(stream->capture, cudaErrorStreamCaptureIsolation,
                 "waiting in a capture for an event that was recorded outside");
  order(stream, {.name = "a wait", .after = {event->recorded}});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  if (stream->capture != nullptr)
    return wrong(cudaErrorIllegalState, "a capture on a stream that captures");
  auto* graph = new CUgraph_st{.gpu = stream->gpu};
  stream->capture = std::make_shared<Capture>(Capture{
      .graph = graph, .origin = stream, .thread = std::this_thread::get_id(), .mode = mode});
  world().captures.insert(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* after,
                                          const cudaGraphEdgeData* /*edges*/, std::size_t count,
                                          cudaStreamCaptureMode mode) {
  const Lock lock;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  if (const cudaError_t error = known(graph); error != cudaSuccess) return error;
  if (stream->capture != nullptr)
    return wrong(cudaErrorIllegalState, "a capture on a stream that captures");
  if (graph->gpu != stream->gpu)
    return wrong(cudaErrorInvalidValue, "a capture into a graph of another GPU");
  for (std::size_t i = 0; i < count; ++i)
    stream->after.push_back(reinterpret_cast<std::size_t>(after[i]) - 1);
  stream->capture = std::make_shared<Capture>(Capture{.graph = graph,
                                                      .adds = true,
                                                      .origin = stream,
                                                      .thread = std::this_thread::get_id(),
                                                      .mode = mode});
  world().captures.insert(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* /*id*/, cudaGraph_t* graph,
                                     const cudaGraphNode_t** after,
                                     const cudaGraphEdgeData** /*edges*/, std::size_t* count) {
  if (const cudaError_t error = cudaStreamIsCapturing(stream, status); error != cudaSuccess)
    return error;
  const Lock lock;
  if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
  *graph = stream->capture->graph;
  stream->handles.clear();
  for (const std::size_t node : stream->after)
    stream->handles.push_back(reinterpret_cast<cudaGraphNode_t>(node + 1));
  if (after != nullptr) *after = stream->handles.data();
  if (count != nullptr) *count = stream->handles.size();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock;
  *graph = nullptr;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  const CapturePtr capture = stream->capture;
  if (capture == nullptr)
    return wrong(cudaErrorIllegalState, "the end of a capture that was not begun");
  if (capture->origin != stream)
    return spoil(capture, cudaErrorStreamCaptureUnmatched, "the end of another stream's capture");
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return spoil(capture, cudaErrorStreamCaptureWrongThread, "the end of another thread's capture");
  const bool joined = is_joined(*capture);
  end(capture);
  if (capture->invalid || !joined) {
    if (!capture->adds) delete capture->graph;
    return capture->invalid ? failed(cudaErrorStreamCaptureInvalidated)
                            : wrong(cudaErrorStreamCaptureUnjoined, "a branch that was not joined");
  }
  world().graphs.insert(capture->graph);
  *graph = capture->graph;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_state().mode);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Lock lock;
  Gpu& gpu = current_gpu();
  if (const cudaError_t error = usable(gpu); error != cudaSuccess) return error;
  *event = new CUevent_st{.gpu = &gpu, .timed = flags != cudaEventDisableTiming};
  world().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock;
  if (!world().events.contains(event)) return known(event);
  world().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock;
  if (const cudaError_t error = known(event); error != cudaSuccess) return error;
  if (const cudaError_t error = known(stream); error != cudaSuccess) return error;
  if (event->gpu != stream->gpu)
    return wrong(cudaErrorInvalidResourceHandle,
                 "an event of one GPU recorded on another's stream");
  event->capture = stream->capture;
  event->nodes = stream->after;
  event->recorded = nullptr;
  if (stream->capture != nullptr) return cudaSuccess;
  event->seconds = std::make_shared<double>(0);
  event->recorded =
      order(stream, {.name = "an event", .task = [at = event->seconds] { *at = now(); }});
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock;
  if (const cudaError_t error = known(event); error != cudaSuccess) return error;
  if (event->capture != nullptr)
    return spoil(event->capture, cudaErrorCapturedEvent, "waiting for an event of a capture");
  if (const cudaError_t error = unsafe("cudaEventSynchronize"); error != cudaSuccess) return error;
  Gpu& gpu = *event->gpu;
  wait_for(lock, event->recorded);
  return usable(gpu);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock;
  for (const cudaEvent_t event : {begin, end}) {
    if (const cudaError_t error = known(event); error != cudaSuccess) return error;
    if (!event->timed || event->recorded == nullptr)
      return wrong(cudaErrorInvalidResourceHandle, "the time of an event without timing");
    if (!event->recorded->done) return failed(cudaErrorNotReady);
  }
  *ms = static_cast<float>((*end->seconds - *begin->seconds) * 1e3);
  return cudaSuccess;
}
