#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_data.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/run/run_config.h"
#include "trainer/train/evaluator.h"

namespace muo::trainer {

// Opens the checkpoint from which --resume continues, without comparing it to a run; nullopt: there
// is none yet. Adds a note for each damaged checkpoint that it skips. Throws InputError.
std::optional<Checkpoint> find_resumed(const RunDirectory& directory, const std::string& resume,
                                       std::vector<std::string>& notes,
                                       const OpenCheckpoint& options = {});

// Opens the checkpoint from which --resume continues, verifies it and checks it against the run,
// and adds its totals to the run's (continue_from()); nullopt: the run starts at step 0. Adds notes
// for damaged checkpoints that it skips and for options that have changed. Throws InputError.
std::optional<Checkpoint> open_resume(const RunDirectory& directory, RunConfig& config,
                                      const data::Corpus& corpus, std::vector<std::string>& notes);

// The same for --init-from; null: random weights.
std::shared_ptr<const Checkpoint> open_init_from(const RunConfig& config,
                                                 const data::Corpus& corpus,
                                                 std::vector<std::string>& notes);

// An evaluation in metrics.jsonl.
struct LoggedEvaluation {
  std::int64_t step = 0;
  EvalResult result;
};
// Returns the evaluations in the order of the file, skipping incomplete lines.
std::vector<LoggedEvaluation> logged_evaluations(const std::filesystem::path& metrics);

// Work due at a checkpoint's step that is missing from the run's log because the process ended
// after it had saved. It remains to be done.
struct LostWork {
  bool evaluation = false, sample = false;
};
LostWork lost_work(const RunDirectory& directory, const RunConfig& config,
                   const Checkpoint& checkpoint);

}  // namespace muo::trainer
