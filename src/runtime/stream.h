#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor.h"

struct CUstream_st;  // keeps CUDA headers out of backend-neutral code

namespace muo {

using NativeStream = CUstream_st*;
using HostTask = std::function<void()>;

// Bytes that a task touches. An in-out tensor is a write that reads, too.
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

// What a task comes to.
struct Cost {
  std::string shape = {};  // of the problem, where speed depends on it: "NT 1024x384x1536"
  double flops = 0;        // 0: it is bound by memory
  double bytes = 0;        // that it moves; 0: all that it accesses, once per read or write
};

// What a capture recorded, on either backend, in capture order (which is a topological order).
struct GraphTrace {
  struct Node {
    std::string name;
    int stream = 0;                    // index of the stream within this capture
    std::vector<std::uint32_t> after;  // nodes that must have run, ascending
    std::vector<Access> accesses;
    Cost cost = {};
    std::string_view phase = {};  // ProfileRange::phase() when it was enqueued
  };
  std::vector<Node> nodes;
};

// What replays of a node took, in seconds.
struct NodeTime {
  std::int64_t calls = 0;
  double wall = 0;
  double thread = 0;  // in which the device's thread ran: the rest it waited, or other programs ran
};

class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  // blocks the calling thread
};

// Captured work that can be replayed. Owns every captured argument.
class Graph {
 public:
  virtual ~Graph() = default;
  [[nodiscard]] virtual const GraphTrace& trace() const = 0;
  // Writes the graph for Graphviz: its nodes, and who waits for whom. Throws Error.
  virtual void write_dot(const std::string& path) const = 0;
  // Replays from now on add up, from zero, what each node takes. False: this backend cannot tell.
  virtual bool time_nodes() { return false; }
  [[nodiscard]] virtual std::span<const NodeTime> node_times() const { return {}; }  // by node
};

// An in-order queue of work on one device. Not thread-safe: one thread uses it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void record(Event& event) = 0;
  // Work enqueued here later runs after what the event recorded. During a capture, waiting for an
  // event of the capture makes this stream part of it; waiting for one recorded outside, or in
  // another capture, is an error.
  virtual void wait(Event& event) = 0;
  virtual void synchronize() = 0;         // an error during capture
  virtual void launch(Graph& graph) = 0;  // an error during capture

  // Work that `body` enqueues here, or on streams that join through events, becomes the graph;
  // nothing runs. If `body` throws, or a branch does not lead back to this stream, the capture is
  // discarded, every stream is usable again, and this throws.
  [[nodiscard]] virtual std::unique_ptr<Graph> capture(const std::function<void()>& body) = 0;

  // dst <- src, same numel and dtype, on this device or between it and host memory. Regions do not
  // overlap.
  virtual void copy(Tensor dst, Tensor src) = 0;
  virtual void zero(Tensor dst) = 0;

  // Only Operation::submit, communicators and the graphs' host side call these.
  virtual void enqueue_host(std::string_view name, std::span<const Access> accesses,
                            HostTask task) = 0;
  // Where work is the host's: each time just before the work that is enqueued next. No node of its
  // own; what it throws, that work throws. Elsewhere nothing.
  virtual void before_next(const HostTask& /*task*/) {}
  // Of the work that was enqueued last. Kept if it became a node of a host's graph.
  virtual void note_cost(const Cost& /*cost*/) {}
  [[nodiscard]] virtual NativeStream native() const = 0;
  [[nodiscard]] virtual bool is_host() const = 0;
};

}  // namespace muo
