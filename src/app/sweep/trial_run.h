#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "app/checkpoint/run_directory.h"
#include "app/sweep/scheduler.h"
#include "app/sweep/sweep_directory.h"
#include "app/train/trainer.h"

namespace muo::app {

// A trial while it trains, from where its run directory says it is to the end of a stretch: all
// that `train` opens for a run, with the messages in <run>/output.log.
class TrialRun {
 public:
  struct Shared {
    const SweepDirectory& directory;
    const data::Corpus& corpus;
    std::shared_ptr<const Checkpoint> init_from = {};
    double peak_flops = 0;
    std::atomic<int>& stop;  // not 0: trials are saved and wait, as at a signal
    // Writes what else a run directory holds of its run: run.json.
    std::function<void(const RunDirectory& directory, const RunConfig& config,
                       const CaptureGroup& group)>
        describe = {};
    // Told what comes out of trials, while they train and at the end; by any thread.
    std::function<void(std::size_t trial, std::int64_t step, const EvalResult& result)> evaluated =
        {};
    std::function<void(std::size_t trial, const TrialResult& result)> ended = {};
  };
  // Throws InputError and Error as opening any run does.
  TrialRun(const Shared& shared, const Trial& trial, const CaptureGroup& group,
           const Scheduler::Stretch& stretch);

  [[nodiscard]] TrainingRun& run() { return *run_; }
  [[nodiscard]] const Scheduler::Stretch& stretch() const { return stretch_; }
  [[nodiscard]] std::int64_t first_step() const { return files_->opened.first_step(); }

  // It ends after the step at hand, evaluated. From any thread.
  void end_early() { end_early_ = true; }
  void flush() { files_->logger.flush(); }
  // All ranks have returned from train_run(): closes the log. Whether a signal has stopped it.
  void end();
  [[nodiscard]] bool was_stopped() const { return run_->decided.stop != 0; }
  [[nodiscard]] double seconds() const;  // until end(), of this stretch
  // Whether its last checkpoint is still on its way to the disk.
  [[nodiscard]] bool is_saving() const { return files_->saver.is_saving(); }
  // Once it is not: what came out. Throws WriteError if the disk did not take it.
  [[nodiscard]] TrialResult result();
  // After that: another TrialRun may open the directory from now on.
  void unlock() { files_->opened.lock = {}; }

 private:
  [[nodiscard]] TrialResult outcome();

  const Scheduler::Stretch stretch_;
  std::atomic<bool> end_early_ = false;
  RunConfig config_;
  std::optional<EvalResult> known_;   // the evaluation at the stretch's end, if it was done before
  std::shared_ptr<EventLog> events_;  // null: none
  std::optional<RunFiles> files_;
  std::unique_ptr<TrainingRun> run_;
  std::chrono::steady_clock::time_point started_, ended_;
};

}  // namespace muo::app
