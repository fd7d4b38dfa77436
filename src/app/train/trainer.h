#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/run/decisions.h"
#include "app/run/run_config.h"
#include "app/train/captured_rank.h"
#include "app/train/open_run.h"
#include "data/token_data.h"
#include "runtime/interruption.h"

namespace muo::app {

// What the ranks of a training run share. Only rank 0 uses its log.
struct TrainingRun {
  const RunConfig& config;
  const data::Corpus& corpus;
  RunFiles& files;
  const std::atomic<int>& signal;  // a signal that asks the run to stop, or 0
  // Where it ends before its last step, with a checkpoint and as its end would.
  std::int64_t until = std::numeric_limits<std::int64_t>::max();
  const std::atomic<bool>* end_early = nullptr;  // asks for the same, after the step at hand
  std::optional<bool> evaluates_last = {};       // at its end; empty: if it evaluates
  bool leaves_last_save = false;                 // in the background: the saver's owner awaits it
  // Told each evaluation, by rank 0.
  std::function<void(std::int64_t step, const EvalResult& result)> evaluated = {};

  // Results, written by rank 0. `steps_done` may be read at any time, the rest after the run.
  std::atomic<std::int64_t> steps_done = 0;
  std::int64_t skipped = 0;  // updates
  std::optional<EvalResult> last_evaluation = {};

  Decisions decided = {};  // before the step at hand

  // Once `signal` is not 0: gives up the step at hand, unless it is being committed, an evaluation
  // or a sample. From any thread.
  void interrupt();
  std::mutex interrupting = {};
  Interruption* interruption = nullptr;  // while ranks train
};

// One rank's training on what it has captured: from new weights or a checkpoint, steps,
// evaluations, saves. Every rank of the group calls it. A run that skips too many updates ends
// early, `too_many_skipped`.
void train_run(CapturedRank& captured, TrainingRun& run);

// What to tell of a run that did: a line.
std::string too_many_skipped_text(const TrainingRun& run);

// Expected seconds of an evaluation of `rows` rows, if `steps` training steps took `seconds`. It
// takes a third of the time per row, as there is only a forward pass.
double expected_evaluation_seconds(const RunConfig& config, std::int64_t rows, std::int64_t steps,
                                   double seconds);

}  // namespace muo::app
