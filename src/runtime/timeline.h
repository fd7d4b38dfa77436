#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/profile_range.h"
#include "runtime/stream.h"

namespace muo {

class ProcessGroup;

// The activity of a rank in one step. Times are seconds of the steady clock.
struct StepRecord {
  struct Node {
    std::uint32_t graph = 0;  // index in RankRecord::graphs
    std::uint32_t node = 0;   // index in the graph's trace
    double begin = 0, end = 0;
  };
  struct HostRange {  // a ProfileRange of the rank's thread
    std::string name;
    std::optional<std::int64_t> number;
    double begin = 0, end = 0;
  };
  std::int64_t step = 0;
  std::vector<Node> nodes;      // in the order in which they ran
  std::vector<HostRange> host;  // in the order in which they began
};

struct RankRecord {
  int rank = 0;
  std::vector<const GraphTrace*> graphs;
  std::vector<StepRecord> steps;
  bool left_out_steps = false;
};

// Records steps of the calling thread's rank, from construction to destruction: ranges of the
// thread, and nodes of graphs if the backend can observe them. Of more than kMaxSteps steps it
// keeps the first and the slowest.
class StepRecorder final : ProfileRange::Observer {
 public:
  static constexpr std::size_t kMaxSteps = 16;

  // The graphs must outlive the record.
  StepRecorder(int rank, std::span<Graph* const> graphs);
  ~StepRecorder() override;
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // `last_is_slowest`: the step that ends took longer than every one before it but the first.
  void begin_step(std::int64_t step, bool last_is_slowest);
  // Ends the last step. Call it once.
  [[nodiscard]] RankRecord take(bool last_is_slowest);

 private:
  struct GraphObserver final : NodeObserver {
    void ran(std::uint32_t node, double begin, double end, double thread) override;
    StepRecorder* recorder = nullptr;
    Graph* graph = nullptr;
    std::uint32_t index = 0;
  };
  void begins(const ProfileRange::Open& range) override;
  void ends() override;
  void end_step(bool is_slowest);

  RankRecord record_;
  std::optional<StepRecord> current_, slowest_;
  std::vector<std::size_t> open_;  // indices in current_->host; ranges begun before: kBefore
  std::deque<GraphObserver> observers_;
  ProfileRange::Named named_;
};

// The records of a process's ranks, and the file that shows them.
class Timeline {
 public:
  // Each process of several has its own file: "step.json" becomes "step.1.json".
  explicit Timeline(const std::filesystem::path& file, const ProcessGroup* processes = nullptr);

  // Returns true if the step that ends now is the slowest so far, not counting the first. Called
  // between two steps of a recording, by one thread.
  bool last_is_slowest();
  // Thread-safe.
  void add(RankRecord record);
  // Writes the records once those of all ranks have been added.
  void write();
  [[nodiscard]] bool is_written() const { return !ranks_.empty(); }
  // The message to log: the path of the timeline, or the reason why there is none.
  [[nodiscard]] std::string note() const;

 private:
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::vector<RankRecord> ranks_;
  std::optional<double> last_end_;
  double longest_ = 0;  // seconds of a step after the first
  bool has_first_ = false;
  std::string failure_;
};

// The records as Trace Event JSON, for Perfetto and chrome://tracing: a process per rank; lanes for
// the host's thread and for the streams; slices nested as the ranges are, with the work of each
// operation. A collective is split at the time at which its last rank began it. On the host backend
// a device runs one operation at a time, so the critical path of a step goes from its last
// operation back through those before it, and from a collective for which others waited, without
// that wait, to what precedes it on the rank that began it last.
std::string timeline_json(std::span<const RankRecord> ranks);

}  // namespace muo
