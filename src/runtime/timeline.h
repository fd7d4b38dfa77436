#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/device_group.h"
#include "runtime/power_meter.h"
#include "runtime/profile_range.h"
#include "runtime/stream.h"

namespace muo {

// The activity of a rank in one step. Times are seconds of the steady clock.
struct StepRecord {
  struct Run {
    std::uint32_t graph = 0;  // index in RankRecord::graphs
    NodeRun run;
  };
  struct HostRange {  // a ProfileRange of the rank's thread
    std::string name;
    std::optional<std::int64_t> number;
    double begin = 0, end = 0;
  };
  struct Launches {  // of a graph: [begin, end)
    std::int64_t begin = 0, end = 0;
  };
  std::int64_t step = 0;
  std::vector<Run> runs;           // in the order in which they began
  std::vector<HostRange> host;     // in the order in which they began
  std::vector<Launches> launches;  // by graph
};

struct RankRecord {
  int rank = 0;
  std::vector<const GraphTrace*> graphs;
  std::vector<StepRecord> steps;
  bool left_out_steps = false;
  std::int64_t lost_runs = 0;  // of all ranks of the process
};

// Records steps of the calling thread's rank, from construction to destruction: ranges of the
// thread, and nodes of graphs if the backend can observe them. Of more than kMaxSteps steps it
// keeps the first and the slowest.
class StepRecorder final : ProfileRange::Observer {
 public:
  static constexpr std::size_t kMaxSteps = 16;

  // The device is idle. The graphs must outlive the record. `ahead`: steps that the host enqueues
  // ahead of the device; so many before the slowest are kept too, as it is the host's time of a
  // step that tells the slowest.
  StepRecorder(int rank, std::span<Graph* const> graphs, int ahead = 0);
  ~StepRecorder() override;
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // `last_is_slowest`: the step that ends took longer than every one before it but the first.
  void begin_step(std::int64_t step, bool last_is_slowest);
  // Ends the last step. Call it once, while all devices are idle.
  [[nodiscard]] RankRecord take(bool last_is_slowest);

 private:
  struct GraphObserver final : NodeObserver {
    void ran(const NodeRun& run) override;
    StepRecorder* recorder = nullptr;
    Graph* graph = nullptr;
    std::uint32_t index = 0;
  };
  void begins(const ProfileRange::Open& range) override;
  void ends() override;
  void end_step(bool is_slowest);
  // Leaves out steps other than the first, the slowest and the `newest` last ones.
  void leave_out_steps(std::size_t newest);

  const int ahead_;
  RankRecord record_;
  std::deque<StepRecord> steps_;  // the last one is the current one, until take()
  std::optional<std::int64_t> slowest_;
  // Open ranges: indices in the current step's StepRecord::host, or kBefore.
  std::vector<std::size_t> open_;
  std::deque<GraphObserver> observers_;
  ProfileRange::Named named_;
};

// Facts about the process's devices, shown beside the records.
struct TimelineFacts {
  struct Power {
    double time = 0;                  // seconds of the steady clock
    double watts = 0, clock_mhz = 0;  // means over the process's devices
  };
  double peak_flops = 0;  // FLOP/s of a device; 0: unknown
  std::vector<Power> power = {};
};

// The records of a process's ranks, and the file that shows them.
class Timeline {
 public:
  // Makes graphs observable, so construct it before the group. Each process of several has its own
  // file: "step.json" becomes "step.1.json".
  explicit Timeline(const std::filesystem::path& file, const GroupOptions& group = {});

  // FLOP/s of a device, of which the operations reach a share.
  void set_peak(double flops) { facts_.peak_flops = flops; }
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
  std::string unrecorded_;  // why nodes are not recorded
  PowerMeter meter_;
  TimelineFacts facts_;
  std::string failure_;
};

// The records as Trace Event JSON, for Perfetto and chrome://tracing: a process per rank; lanes for
// the host's thread and for the streams; slices nested as the ranges are, with the work of each
// operation, and its kernels if it has several. A collective is split at the time at which its last
// rank began it.
//
// The critical path of a step leads back from its last operation: on GPUs to the dependency that
// ended last, on the host backend, where a device runs one operation at a time, to the previous
// operation; and from a collective for which others waited, without that wait, to what precedes it
// on the rank that began it last.
std::string timeline_json(std::span<const RankRecord> ranks, const TimelineFacts& facts = {});

}  // namespace muo
