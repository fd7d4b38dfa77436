#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/run_directory.h"
#include "app/run/run_config.h"
#include "app/train/evaluator.h"
#include "data/token_data.h"

namespace muo::app {

// The checkpoint of a run that --resume goes on from, as it is; empty: there is none yet. `notes`
// gets those that are damaged and were skipped. Throws InputError.
std::optional<Checkpoint> find_resumed(const RunDirectory& directory, const std::string& resume,
                                       std::vector<std::string>& notes,
                                       const OpenCheckpoint& options = {});

// The checkpoint that --resume goes on from, verified and checked against the run, which from then
// on counts what is trained; empty: from the start. Throws InputError. `notes` gets what the user
// should know: damaged ones that were skipped, options that have changed.
std::optional<Checkpoint> open_resume(const RunDirectory& directory, RunConfig& config,
                                      const data::Corpus& corpus, std::vector<std::string>& notes);

// The same of --init-from; null: new weights.
std::shared_ptr<const Checkpoint> open_init_from(const RunConfig& config,
                                                 const data::Corpus& corpus,
                                                 std::vector<std::string>& notes);

// An evaluation that metrics.jsonl holds.
struct LoggedEvaluation {
  std::int64_t step = 0;
  EvalResult result;
};
// In the order of the file; lines that are not whole are passed over.
std::vector<LoggedEvaluation> logged_evaluations(const std::filesystem::path& metrics);

// What was to follow this checkpoint of the run, and did not, as the process that saved it ended
// before: it is due at that step, and not in the run's log.
struct LostWork {
  bool evaluation = false, sample = false;
};
LostWork lost_work(const RunDirectory& directory, const RunConfig& config,
                   const Checkpoint& checkpoint);

}  // namespace muo::app
