#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/token_data.h"
#include "runtime/interruption.h"
#include "runtime/timeline.h"
#include "trainer/run/decisions.h"
#include "trainer/run/run_config.h"
#include "trainer/train/captured_rank.h"
#include "trainer/train/open_run.h"

namespace muo::trainer {

// State shared by the ranks of a training run. Only rank 0 uses the log.
struct TrainingRun {
  const RunConfig& config;
  const data::Corpus& corpus;
  RunFiles& files;
  const std::atomic<int>& signal;  // stop signal received, or 0
  // Step at which the run ends early, with a checkpoint, as at its last step.
  std::int64_t until = std::numeric_limits<std::int64_t>::max();
  double until_seconds = std::numeric_limits<double>::infinity();  // of its time budget: likewise
  const std::atomic<bool>* end_early = nullptr;  // if true, the run ends after the current step
  std::optional<bool> evaluate_at_end = {};      // empty: if the run evaluates at all
  bool last_save_in_background = false;          // the saver's owner waits for the last save
  Timeline* timeline = nullptr;                  // null: steps are not recorded
  // Called by rank 0 after each evaluation.
  std::function<void(std::int64_t step, const EvalResult& result)> on_evaluation = {};

  // Results, written by rank 0. The first two may be read at any time, the others only after the
  // run.
  std::atomic<std::int64_t> steps_done = 0;
  std::atomic<double> seconds = 0;  // of this process's steps
  std::int64_t skipped = 0;         // updates
  Pacing pacing = Pacing(config);
  std::optional<EvalResult> last_evaluation = {};

  Decisions decided = {};                       // taken before the current step
  std::optional<BudgetClock> saved_clock = {};  // with a time budget: of the current save

  // Abandons the current step, evaluation or sample, unless a step is being committed. Called from
  // any thread once `signal` is not 0.
  void interrupt();
  std::mutex interrupting = {};
  Interruption* interruption = nullptr;  // null unless ranks are training
};

// Trains one rank with its captured state: restores or initializes the weights, then runs steps,
// evaluations and saves. Collective. A run that skips too many updates ends early, with
// run.decided.too_many_skipped set.
void train_run(CapturedRank& captured, TrainingRun& run);

// The one-line error message of a run that skipped too many updates.
std::string too_many_skipped_text(const TrainingRun& run);

// Expected seconds of an evaluation of `rows` rows if training `trained_rows` rows took `seconds`:
// a third of that time per row, because there is only a forward pass.
double expected_evaluation_seconds(std::int64_t rows, std::int64_t trained_rows, double seconds);

}  // namespace muo::trainer
