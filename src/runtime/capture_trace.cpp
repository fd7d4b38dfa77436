#include "runtime/capture_trace.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace muo {
namespace {

// Returns the index of the innermost open range of this thread, or -1.
std::int32_t innermost_range(CaptureTrace& capture) {
  auto& ranges = capture.ranges;
  const std::span<const ProfileRange::Open> now = ProfileRange::open();
  const auto same = std::ranges::mismatch(now, ranges, {}, &ProfileRange::Open::id,
                                          &std::pair<std::uint64_t, std::int32_t>::first);
  ranges.erase(same.in2, ranges.end());
  for (auto more = same.in1; more != now.end(); ++more) {
    const std::int32_t outer = ranges.empty() ? -1 : ranges.back().second;
    ranges.emplace_back(more->id, static_cast<std::int32_t>(capture.trace.ranges.size()));
    capture.trace.ranges.push_back(
        {.kind = more->kind, .name = more->name, .number = more->number, .outer = outer});
  }
  return ranges.empty() ? -1 : ranges.back().second;
}

}  // namespace

void TracedStream::enter(std::shared_ptr<CaptureTrace> capture) {
  if (capture_ != capture) {
    index_ = static_cast<int>(capture->trace.streams.size());
    capture->trace.streams.push_back(priority_);
  }
  capture_ = std::move(capture);
  part_ = capture_->part;
  frontier_.clear();
}

TracePoint TracedStream::point() const {
  if (!is_capturing()) return {};
  return {.capture = capture_, .part = part_, .after = frontier_};
}

void TracedStream::wait(const TracePoint& event) {
  MUO_CHECK(event.capture->open, "waiting for an event of a finished capture");
  MUO_CHECK(event.part == event.capture->part, "an event crosses the boundary of a loop");
  if (!is_capturing()) enter(event.capture);
  MUO_CHECK(capture_ == event.capture, "waiting for an event of another capture");
  for (const std::uint32_t node : event.after)
    if (std::ranges::find(frontier_, node) == frontier_.end()) frontier_.push_back(node);
}

std::uint32_t TracedStream::add(std::string_view name, std::span<const Access> accesses) {
  std::ranges::sort(frontier_);
  frontier_.erase(std::unique(frontier_.begin(), frontier_.end()), frontier_.end());
  auto& nodes = capture_->trace.nodes;
  const auto node = static_cast<std::uint32_t>(nodes.size());
  nodes.push_back({.name = std::string(name),
                   .stream = index_,
                   .after = std::exchange(frontier_, {node}),
                   .accesses = {accesses.begin(), accesses.end()},
                   .range = innermost_range(*capture_)});
  return node;
}

void TracedStream::loop(const std::function<void()>& body, const std::function<void()>& end_pass) {
  MUO_CHECK(!capture_->in_loop, "a loop within a loop");
  begin_part(true);
  const auto first = static_cast<std::uint32_t>(capture_->trace.nodes.size());
  body();
  check_joined();
  end_pass();
  capture_->trace.loops.push_back(
      {.begin = first, .end = static_cast<std::uint32_t>(capture_->trace.nodes.size())});
  begin_part(false);
}

// Every branch must be joined to this stream, which alone goes on in the new part.
void TracedStream::begin_part(bool in_loop) {
  check_joined();
  part_ = ++capture_->part;
  capture_->part_begin = frontier_.empty() ? 0 : frontier_.front();
  capture_->in_loop = in_loop;
}

void TracedStream::check_joined() const {
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

}  // namespace muo
