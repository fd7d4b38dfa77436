#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/run/memory_fit.h"
#include "app/run/run_memory.h"
#include "app/sweep/search_space.h"
#include "base/enum_names.h"

namespace muo::app {

enum class TrialState : std::uint8_t {
  kWaiting,  // for a device
  kRunning,
  kPaused,    // at a rung, not decided yet
  kDone,      // trained to its end
  kStopped,   // by halving
  kDiverged,  // numbers that are not finite
  kRefused,   // options that cannot be
  kFailed,
};
constexpr auto names_of(TrialState) {
  return name_list("waiting", "running", "paused", "done", "stopped", "diverged", "refused",
                   "failed");
}
inline bool has_ended(TrialState state) {
  return state != TrialState::kWaiting && state != TrialState::kRunning &&
         state != TrialState::kPaused;
}

// What became of a trial up to a rung or to its end.
struct TrialResult {
  TrialState state = TrialState::kDone;  // or kPaused, kDiverged, kFailed
  std::int64_t step = 0;
  std::optional<double> val_loss = {}, val_bpb = {};
  std::optional<double> best = {};  // of all evaluations so far, of what trials are compared by
  double seconds = 0;               // from its first step here to its end
  std::string message = {};         // why it ended early

  // What trials are compared by: bits per byte where they are known, else the loss; lower is
  // better. Empty: none was finite.
  [[nodiscard]] std::optional<double> score() const { return val_bpb ? val_bpb : val_loss; }
};

// One run of a sweep.
struct Trial {
  Point point;
  TrainOptions options;             // before anything automatic is filled in
  std::optional<RunConfig> config;  // empty: refused
  std::size_t group = 0;            // in SweepPlan::groups
  std::string refusal;
  std::string name = {};  // that an outside optimizer has given it
};

// Bytes of a worker's share: of each of its devices, and of the host.
struct WorkerMemory {
  std::int64_t device = 0, host = 0;
};

// Trials that one captured step serves, as they differ in options of classes kHost and kMemory.
struct CaptureGroup {
  // Its first trial. With staging memory trials train on while a checkpoint of the one before them
  // is written.
  PlannedRun run;
  WorkerMemory memory_kept = {};  // by a worker that has captured it
};

// A sweep before it begins.
struct SweepPlan {
  std::vector<Trial> trials;
  std::vector<CaptureGroup> groups;
  std::vector<std::vector<std::size_t>> points;  // trials that differ in their seed only
  std::vector<std::string> splitting;  // options that trials differ in and that make groups
  int workers = 1;                     // trials at the same time
  int trials_per_device = 1;           // of them
  WorkerMemory worker_memory;          // what a worker's groups may take, if it has several
  std::vector<std::int64_t> rungs;     // steps of halving; empty: none
  std::string warning;                 // of them, if any
};

// Resolves trials: all at once, or with --ask-tell one after another.
class SweepPlanner {
 public:
  // Both must outlive it. Throws InputError where nothing could be trained: no devices, data that
  // are too short, halving that has no rungs, every trial refused. With --ask-tell there are no
  // trials yet, and the first group is that of the common options. Trials that are in `before`, of
  // an earlier process, keep its numbers; those that the grid has got since come after them.
  SweepPlanner(const SweepOptions& options, const data::Corpus& corpus,
               std::span<const Point> before = {});

  [[nodiscard]] const SweepPlan& plan() const { return plan_; }
  // With --ask-tell: one more trial, by its number. Trials and groups that are there stay where
  // they are, and other threads may read them meanwhile. At most kMostTrials.
  std::size_t add(std::string name, Point point);

 private:
  void choose_devices();
  void plan_one(std::string name, Point point);
  void join_group(Trial& trial, RunConfig config, const std::string& key);
  void make_group(RunConfig& config, const std::string& key);
  void name_what_splits();
  void collect_points();
  void choose_rungs();

  const SweepOptions& options_;
  const data::Corpus& corpus_;
  TrainOptions common_;
  MemoryBudget budget_;  // before anything is trained
  SweepPlan plan_;
  std::map<std::string, std::size_t> groups_;
  std::map<std::string, std::string> refused_;
};

// Of a point; empty: it does not say.
std::string value_in(const Point& point, std::string_view option);
// What trials differ in, in the order of their points.
std::vector<std::string> varied_options(const SweepPlan& plan);

// The `train` command that does what the trial does, for a shell.
std::string train_command(const TrainOptions& options);

}  // namespace muo::app
