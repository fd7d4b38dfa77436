#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/profile_range.h"
#include "runtime/tensor.h"

struct CUstream_st;  // keeps CUDA headers out of backend-neutral code

namespace muo {

using NativeStream = CUstream_st*;
using HostTask = std::function<void()>;

// Bytes that a task accesses. An in-out tensor is one access: a write that also reads.
struct Access {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
  bool write = false;
  bool reads_too = false;
  DType dtype = DType::kBytes;
};
inline Access access_of(const Tensor& tensor, bool write, bool reads_too = false) {
  return {tensor.data, tensor.bytes(), write, reads_too, tensor.dtype};
}

// Cost of a task.
struct Cost {
  std::string shape = {};  // of the problem, if speed depends on it: "NT 1024x384x1536"
  double flops = 0;        // 0: memory-bound
  double bytes = 0;        // bytes moved; 0: every access once
};

enum class StreamPriority : std::uint8_t { kNormal, kHigh, kLow };

// Record of a capture, on either backend, in capture order (which is a topological order).
struct GraphTrace {
  // A ProfileRange of the capture. Equal names in different places are different ranges.
  struct Range {
    ProfileKind kind = ProfileKind::kPhase;
    std::string name;
    std::optional<std::int64_t> number;
    std::int32_t outer = -1;  // index of the range around it; -1: none
  };
  struct Node {
    std::string name;
    int stream = 0;                    // index of the stream within this capture
    std::vector<std::uint32_t> after;  // nodes that must have run, ascending
    std::vector<Access> accesses;
    Cost cost = {};
    std::int32_t range = -1;  // index of the innermost range in which it was enqueued; -1: none
  };
  // Nodes [begin, end), which are one pass of a loop. The node before them sets the loop's counter
  // to 0; the last of them adds 1 to it.
  struct Loop {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  std::vector<Node> nodes;
  std::vector<Loop> loops;              // in order, disjoint
  std::vector<Range> ranges;            // a range follows the one around it
  std::vector<StreamPriority> streams;  // by index of the stream
};

// Counter of a loop: int64 scalars in device memory.
struct LoopCounter {
  Tensor passes;  // completed so far; the loop writes it
  Tensor count;   // passes to make
};

// One execution of a node. Times are in seconds of the steady clock.
struct NodeRun {
  std::uint32_t node = 0;
  std::int64_t launch = 0;  // index of the launch of its graph
  double begin = 0, end = 0;
  double thread = 0;  // host backend: CPU seconds of the device's thread; the rest was waiting
  // GPUs: the kernel, copy or fill, of which a node may have several.
  std::uint64_t part = 0;        // differs between those of a graph
  const char* kernel = nullptr;  // its name, valid while the process runs
};

// Sees the nodes of a graph's launches, on the thread that launches it.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void ran(const NodeRun& run) = 0;
};

class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  // blocks the calling thread
};

// Captured work that can be replayed. Owns all captured arguments.
class Graph {
 public:
  explicit Graph(GraphTrace trace) : trace_(std::move(trace)) {}
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  [[nodiscard]] const GraphTrace& trace() const { return trace_; }
  // Number of launches so far.
  [[nodiscard]] std::int64_t launches() const { return launches_; }
  // Shows the nodes of later launches to `observer`, which must outlive them, or, if it is null, to
  // none. The host backend shows a node when it has run, GPUs in show_observed(). False if that is
  // not possible: on GPUs, if recording was not begun (BackendPlugin::record_nodes). Call it while
  // the device is idle.
  virtual bool observe(NodeObserver* observer) = 0;
  // Shows nodes of which the GPU has delivered the times by now; `all`: of all launches, for which
  // the device must be idle.
  virtual void show_observed(bool /*all*/) {}
  // GPUs: number of executions that no observer sees although they were recorded, of all graphs of
  // the process.
  [[nodiscard]] virtual std::int64_t lost_runs() const { return 0; }

 protected:
  std::int64_t launches_ = 0;

 private:
  const GraphTrace trace_;
};

// An in-order queue of work on one device. Not thread-safe: used by one thread.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void record(Event& event) = 0;
  // Work enqueued here later runs after the work that the event recorded. During a capture, waiting
  // for an event of the capture makes this stream part of it; waiting for one recorded outside, or
  // in another capture, is an error.
  virtual void wait(Event& event) = 0;
  virtual void synchronize() = 0;         // an error during capture
  virtual void launch(Graph& graph) = 0;  // an error during capture

  // Captures work that `body` enqueues here, or on streams that join through events, without
  // running it. If `body` throws, or a branch is not joined to this stream, the capture is
  // discarded, every stream is usable again, and this throws.
  [[nodiscard]] virtual std::unique_ptr<Graph> capture(const std::function<void()>& body) = 0;

  // Runs `body` counter.count times; counter.passes is the index of the current pass. In a capture
  // this becomes a loop of the graph (CUDA: a conditional WHILE node), which reads the count at
  // every replay: `body` is captured once, and `count` is ignored. Then every branch must be joined
  // to this stream before the loop and at the end of `body`, where events recorded before the loop
  // are invalid; call it on the stream that captures. Outside a capture, `count` must equal
  // counter.count. Loops do not nest. On GPUs, `body` may only hold kernels of this device, and
  // copies and fills of device memory or mapped host memory.
  virtual void loop(const LoopCounter& counter, std::int64_t count,
                    const std::function<void()>& body) = 0;

  // dst <- src, of equal numel and dtype, on this device or between it and host memory. The regions
  // must not overlap.
  virtual void copy(Tensor dst, Tensor src) = 0;
  virtual void zero(Tensor dst) = 0;

  // Called by Operation::submit, communicators and the host side of graphs only.
  virtual void enqueue_host(std::string_view name, std::span<const Access> accesses,
                            HostTask task) = 0;
  // GPUs: the work that is enqueued next is a node of the capture in progress. Returns false if
  // there is none.
  virtual bool add_node(std::string_view /*name*/, std::span<const Access> /*accesses*/) {
    return false;
  }
  // Host backend: runs `task` each time just before the work that is enqueued next, as part of its
  // node; exceptions become that work's. Other backends ignore it.
  virtual void before_next(const HostTask& /*task*/) {}
  // Cost of the work that was enqueued last, if that became a node.
  virtual void note_cost(const Cost& /*cost*/) {}
  [[nodiscard]] virtual NativeStream native() const = 0;
  [[nodiscard]] virtual bool is_host() const = 0;
};

}  // namespace muo
