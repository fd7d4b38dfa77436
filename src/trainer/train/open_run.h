#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_data.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_saver.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/run/run_config.h"
#include "trainer/train/logger.h"
#include "trainer/train/resume.h"

namespace muo::trainer {

// A run's directory and the checkpoint from which the run resumes or starts.
struct OpenedRun {
  RunDirectory directory = {};
  FileLock lock = {};                                // of the directory, if it existed
  std::optional<Checkpoint> resume = {};             // none: the run starts at step 0
  std::shared_ptr<const Checkpoint> init_from = {};  // source of the initial weights; null: random
  LostWork lost = {};                                // work due at the step of `resume`
  std::vector<std::string> notes = {};               // for the user

  [[nodiscard]] std::int64_t first_step() const { return resume ? resume->info().step : 0; }
};

// Opens a run without writing anything. For a resumed run, sets the totals in `config` from its
// checkpoint (continue_from()). Throws InputError, and WriteError if the directory cannot be
// locked.
OpenedRun open_run(RunConfig& config, const data::Corpus& corpus);

// The same for a trial of a sweep: it resumes from its newest checkpoint, or starts from
// `init_from`.
OpenedRun open_trial(const RunDirectory& directory, RunConfig& config,
                     std::shared_ptr<const Checkpoint> init_from);

// The same for several processes: process 0 opens the run and sends opened_text(), from which the
// other processes open it.
std::string opened_text(const OpenedRun& opened);
OpenedRun open_from_root(const std::string& text, RunConfig& config, const data::Corpus& corpus);

// Creates the directory with config.toml, the tokenizer, the files that `describe` writes and
// TensorBoard's file. Returns the options for the logger. Throws WriteError.
LoggerOptions make_run_directory(const RunConfig& config, const data::Corpus& corpus,
                                 OpenedRun& opened, double peak_flops,
                                 const std::function<void()>& describe);
// The contents of the directory's config.toml.
std::string written_config(const RunDirectory& directory);
// Options for the logger of a process other than 0, which logs only messages, in
// output.<process>.log. Throws InputError if config.toml differs from `expected_config`, which
// process 0 wrote: all processes must share a file system.
LoggerOptions open_process_log(int process, const RunConfig& config, const OpenedRun& opened,
                               const std::string& expected_config);

// Files that a run writes while it trains.
struct RunFiles {
  // A checkpoint is committed once all earlier steps in metrics.jsonl are on the disk, so that a
  // resumed run leaves no gap there. After ten seconds it is committed anyway, with a warning.
  // `processes` must outlive this object; null for a single process.
  RunFiles(const RunConfig& config, OpenedRun run, const LoggerOptions& logging,
           ProcessGroup* processes = nullptr);

  OpenedRun opened;
  Logger logger;
  CheckpointSaver saver;
};

}  // namespace muo::trainer
