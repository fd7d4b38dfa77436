#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "kit/sweep/search_space.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {

enum class TrialState : std::uint8_t {
  kWaiting,  // for a device
  kRunning,
  kPaused,    // at a rung, waiting for the decision
  kDone,      // trained to its end
  kStopped,   // by halving, or by an external optimizer
  kDiverged,  // non-finite loss, or too many skipped updates
  kRefused,   // invalid options
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

// The result of a trial at a rung or at its end.
struct TrialResult {
  TrialState state = TrialState::kDone;
  std::int64_t step = 0;
  std::optional<double> val_loss = {}, val_bpb = {};
  std::optional<double> best = {};  // best score of all evaluations so far
  double seconds = 0;               // wall-clock time of the segment
  std::string message = {};         // why the trial ended early

  // The metric by which trials are compared: bits per byte if known, otherwise the loss; lower is
  // better. Empty if it is not finite.
  [[nodiscard]] std::optional<double> score() const { return val_bpb ? val_bpb : val_loss; }
};

// One run of a sweep.
struct Trial {
  Point point;
  trainer::TrainOptions options;             // before automatic options are resolved
  std::optional<trainer::RunConfig> config;  // empty: refused
  std::size_t group = 0;                     // index in SweepPlan::groups
  std::string refusal;                       // why it is refused
  std::string name = {};                     // given by an external optimizer
  bool is_final = false;                     // trains to its end: no halving
};

// The length of a trial, and of its training so far: in steps, or, with a time budget, in
// milliseconds of training.
std::int64_t length_of(const trainer::RunConfig& config);

// Numbers of fresh seeds after which finalists are tested (finals.h), fixed beforehand.
inline constexpr std::array kLooks = {4, 6, 8, 12, 16};

// Bytes of a worker's memory: on each of its devices and on the host.
struct WorkerMemory {
  std::int64_t device = 0, host = 0;
};

// Trials that share one captured step because they differ only in options of classes kHost and
// kMemory.
struct CaptureGroup {
  // Planned for the group's first trial. With staging memory, the next trial trains while the
  // previous trial's checkpoint is written.
  trainer::PlannedRun run;
  WorkerMemory memory_kept = {};  // used by a worker that has captured the step
};

// All trials of a sweep and how they run.
struct SweepPlan {
  std::vector<Trial> trials;
  std::vector<CaptureGroup> groups;
  // Each point: trials that differ only in their seed.
  std::vector<std::vector<std::size_t>> points;
  std::vector<std::string> splitting;  // varied options that need a capture per value
  int workers = 1;                     // number of concurrent trials
  int trials_per_device = 1;           // concurrent trials on each device
  WorkerMemory worker_memory;          // limit for all groups captured by a worker
  bool is_timed = false;               // trials have time budgets
  std::vector<std::int64_t> rungs;     // lengths at which trials are compared; empty: no halving
  std::string warning;                 // about the rungs; empty: none
};

// Resolves trials: all at once, or one at a time with --ask-tell.
class SweepPlanner {
 public:
  // Both arguments must outlive this object. Throws InputError if nothing can be trained: no
  // devices, too little data, halving without rungs, or every trial refused. With --ask-tell there
  // are no trials yet, and the first group is that of the common options. Trials whose points are
  // in `before`, from an earlier process, keep their numbers; trials added to the grid since then
  // come after them.
  SweepPlanner(const trainer::SweepOptions& options, const data::Corpus& corpus,
               std::span<const Point> before = {});

  [[nodiscard]] const SweepPlan& plan() const { return plan_; }
  // With --ask-tell: adds a trial and returns its number. Existing trials and groups keep their
  // addresses, and other threads may read them at the same time. At most kMaxTrials may be added.
  std::size_t add(std::string name, Point point);
  // Adds a trial of the finals (finals.h) in the same way. It belongs to no point.
  std::size_t add_final(Point point);

 private:
  void choose_devices();
  void plan_one(std::string name, Point point);
  void join_group(Trial& trial, trainer::RunConfig config, const std::string& key);
  void make_group(trainer::RunConfig& config, const std::string& key);
  void list_splitting_options();
  void collect_points();
  void choose_rungs();
  void divide_budget(std::size_t trials);

  const trainer::SweepOptions& options_;
  const data::Corpus& corpus_;
  trainer::TrainOptions common_;
  trainer::MemoryBudget budget_;  // measured before training begins
  SweepPlan plan_;
  std::map<std::string, std::size_t> groups_;
  std::map<std::string, std::string> refused_;
};

// Returns the point without its seed.
Point without_seed(Point point);
// Returns the option's value in a point; empty if the point does not set the option.
std::string value_in(const Point& point, std::string_view option);
// Returns the options in which trials differ, in the order in which their points hold them.
std::vector<std::string> varied_options(const SweepPlan& plan);

// Returns the `train` command, quoted for a shell, that repeats the trial's training.
std::string train_command(const trainer::TrainOptions& options);

}  // namespace muo::kit
