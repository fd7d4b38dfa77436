#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/durable_files.h"
#include "kit/sweep/scheduler.h"

namespace muo::kit {

// Reads the points of a sweep's trials from its journal, in the order of their numbers. Returns
// none if `root` holds no sweep. Throws InputError.
[[nodiscard]] std::vector<Point> journal_points(const std::filesystem::path& root);

// The point in a journal's line of a trial. Throws nlohmann's exceptions.
[[nodiscard]] Point journal_point(const nlohmann::json& line);

// <root>/sweep.toml      options, which `sweep --config` reads back
// <root>/sweep.jsonl     the journal: trials, results and promotions in their order
// <root>/sweep.csv       a row for each trial
// <root>/trials/0007/    a run directory like that of any `train` (run_directory.h)
// <root>/run.lock
class SweepDirectory {
 public:
  // Opens and locks the directory that the options name: a new one, or with --resume an existing
  // one. `data` is data_identity(). Throws InputError if a new one already holds a sweep, or if the
  // existing sweep has other options (the message names the option that differs). A grid without
  // halving may have additional values; the plan must then begin with the journal_points().
  SweepDirectory(const trainer::SweepOptions& options, const SweepPlan& plan,
                 const std::string& data);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] std::filesystem::path trial(std::size_t number) const;
  [[nodiscard]] bool is_resumed() const { return !lines_.empty(); }

  // Replays the journal: results and promotions into the scheduler, and trials into `add_trial`,
  // which is given if the plan does not have them. Throws InputError for invalid lines.
  void replay(Scheduler& scheduler,
              const std::function<void(const nlohmann::json& line)>& add_trial = {}) const;
  // These append to the journal and return when the line is on disk. May be called from any thread.
  // Throw WriteError; after one failure every call throws, because lines after a missing one would
  // have another meaning.
  void add_trial(std::size_t number, const Trial& trial);
  void add_result(std::size_t trial, std::size_t rung, const TrialResult& result);
  void add_part(std::size_t trial, std::int64_t step, double seconds);  // Scheduler::add_part()
  // The same, but returns false instead of throwing WriteError.
  bool add_promotion(std::size_t trial, std::size_t rung);
  // Returns why the journal could not be written, or an empty text. May be called from any thread.
  [[nodiscard]] std::string failure() const;
  // Replaces sweep.csv atomically.
  void write_table(const SweepPlan& plan, const std::vector<TrialStatus>& status) const;

 private:
  void begin(const trainer::SweepOptions& options, const SweepPlan& plan,
             const std::string& header);
  void resume(const trainer::SweepOptions& options, const SweepPlan& plan,
              const std::string& header);
  void append(const std::string& line);

  std::filesystem::path root_;
  FileLock lock_;
  mutable std::mutex mutex_;
  AppendOnlyFile journal_;
  std::string failure_;
  std::vector<std::string> lines_;  // journal of earlier processes, without its header
};

}  // namespace muo::kit
