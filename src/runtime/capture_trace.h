#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/stream.h"

namespace muo {

// A capture in progress, to which its streams add nodes.
struct CaptureTrace {
  GraphTrace trace;
  bool open = true;
  bool in_loop = false;
  // A loop's body, and what follows it, are parts of their own: other streams join each anew, and
  // events are valid within one.
  int part = 0;
  std::uint32_t part_begin = 0;  // first node
  // Ranges that were open at the last node: the outermost first, and their indices in the trace.
  std::vector<std::pair<std::uint64_t, std::int32_t>> ranges;
};

// The nodes that an event recorded in a capture; work that waits for the event follows them.
// `capture` is null if the event was not recorded in a capture.
struct TracePoint {
  std::shared_ptr<CaptureTrace> capture;
  int part = 0;
  std::vector<std::uint32_t> after;
};

// A stream's side of captures, on either backend. Errors are thrown as Error.
class TracedStream {
 public:
  explicit TracedStream(StreamPriority priority) : priority_(priority) {}

  [[nodiscard]] bool is_capturing() const {
    return capture_ && capture_->open && capture_->part == part_;
  }
  [[nodiscard]] CaptureTrace& capture() const { return *capture_; }
  // Makes the stream part of a capture.
  void enter(std::shared_ptr<CaptureTrace> capture);
  [[nodiscard]] TracePoint point() const;
  // `event` was recorded in a capture, which this stream joins.
  void wait(const TracePoint& event);
  // Adds a node, which follows the stream's last one and those of the events waited for. Returns
  // its index.
  std::uint32_t add(std::string_view name, std::span<const Access> accesses);
  void note_cost(const Cost& cost) { capture_->trace.nodes.back().cost = cost; }
  // Records a loop: the nodes of `body` and of `end_pass`, which adds 1 to the counter.
  void loop(const std::function<void()>& body, const std::function<void()>& end_pass);
  // The rule behind cudaErrorStreamCaptureUnjoined: every branch must be joined to this stream.
  void check_joined() const;

 private:
  void begin_part(bool in_loop);

  const StreamPriority priority_;
  std::shared_ptr<CaptureTrace> capture_;
  int part_ = 0;                         // of capture_ that this stream joined
  int index_ = 0;                        // of this stream in capture_
  std::vector<std::uint32_t> frontier_;  // predecessors of the next node on this stream
};

}  // namespace muo
