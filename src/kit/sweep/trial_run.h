#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "kit/sweep/scheduler.h"
#include "kit/sweep/sweep_directory.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/train/trainer.h"

namespace muo::kit {

// A running trial, from the newest checkpoint in its run directory to the end of a segment:
// everything that `train` opens for a run, with messages in <run>/output.log.
class TrialRun {
 public:
  struct Shared {
    const SweepDirectory& directory;
    const data::Corpus& corpus;
    std::shared_ptr<const trainer::Checkpoint> init_from = {};
    double peak_flops = 0;
    std::atomic<int>& stop;  // not 0: running trials save a checkpoint and wait, as after a signal
    // Writes run.json to the run directory.
    std::function<void(const trainer::RunDirectory& directory, const trainer::RunConfig& config,
                       const CaptureGroup& group)>
        describe = {};
    // Called with evaluations of running trials and with results, from any thread.
    std::function<void(std::size_t trial, std::int64_t step, const trainer::EvalResult& result)>
        evaluated = {};
    std::function<void(std::size_t trial, const TrialResult& result)> ended = {};
  };
  // Throws InputError and Error, as OpenedRun does.
  TrialRun(const Shared& shared, const Trial& trial, const CaptureGroup& group,
           const Scheduler::Segment& segment);

  [[nodiscard]] trainer::TrainingRun& run() { return *run_; }
  [[nodiscard]] const Scheduler::Segment& segment() const { return segment_; }
  // Length at the start of this segment, and now (length_of()).
  [[nodiscard]] std::int64_t first_length() const;
  [[nodiscard]] std::int64_t length() const;

  // Ends the trial after the current step, with an evaluation. May be called from any thread.
  void end_early() { end_early_ = true; }
  void flush() { files_->logger.flush(); }
  // Closes the log. Call this when all ranks have returned from train_run().
  void end();
  // True if a signal has stopped the trial.
  [[nodiscard]] bool was_stopped() const { return run_->decided.stop != 0; }
  [[nodiscard]] double seconds() const;  // wall-clock time from construction to end()
  // True while the last checkpoint is being written.
  [[nodiscard]] bool is_saving() const { return files_->saver.is_saving(); }
  // Precondition: !is_saving(). Throws WriteError if the checkpoint could not be written.
  [[nodiscard]] TrialResult result();
  // Releases the lock, so that another TrialRun may open the directory.
  void unlock() { files_->opened.lock = {}; }

 private:
  [[nodiscard]] TrialResult outcome();

  const Scheduler::Segment segment_;
  std::atomic<bool> end_early_ = false;
  trainer::RunConfig config_;
  std::optional<trainer::EvalResult>
      known_;  // evaluation at the end of the segment, from an earlier process
  std::shared_ptr<trainer::EventLog> events_;  // null: none
  std::optional<trainer::RunFiles> files_;
  std::unique_ptr<trainer::TrainingRun> run_;
  std::chrono::steady_clock::time_point started_, ended_;
};

}  // namespace muo::kit
