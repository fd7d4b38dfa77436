#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "app/sweep/scheduler.h"
#include "base/durable_files.h"

namespace muo::app {

// The points of a sweep's trials, by their numbers, as its journal has them; none if no sweep is
// there. Throws InputError.
[[nodiscard]] std::vector<Point> journal_points(const std::filesystem::path& root);

// <root>/sweep.toml      what `sweep --config` reads back
// <root>/sweep.jsonl     the journal: what was decided and came out, in its order
// <root>/sweep.csv       a row for each trial
// <root>/trials/0007/    a run directory like that of any `train` (run_directory.h)
// <root>/run.lock
class SweepDirectory {
 public:
  // Opens the directory of the options: a new one, or with --resume one that is there. Locks it.
  // `data`: data_identity(). Throws InputError for one that holds a sweep, or another one than is
  // asked for (naming the option that differs). A grid without halving may have got values: the
  // plan then begins with the journal_points().
  SweepDirectory(const SweepOptions& options, const SweepPlan& plan, const std::string& data);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] std::filesystem::path trial(std::size_t number) const;
  [[nodiscard]] bool is_resumed() const { return !lines_.empty(); }

  // Gives what the journal holds to the scheduler, its trials to `add_trial`, if any is given: the
  // sweep's plan does not have them. Throws InputError for lines that do not fit.
  void replay(Scheduler& scheduler,
              const std::function<void(const nlohmann::json& line)>& add_trial = {}) const;
  // Appends to the journal; on return it is on the disk. From any thread. Throws WriteError, also
  // whenever it has done so before: what comes after a line that is missing would mean another.
  void add_trial(std::size_t number, const Trial& trial);
  void add_result(std::size_t trial, std::size_t rung, const TrialResult& result);
  void add_part(std::size_t trial, std::int64_t step, double seconds);  // Scheduler::add_part()
  // The same; but where it cannot be, false.
  bool add_promotion(std::size_t trial, std::size_t rung);
  // Why the journal could not be written; empty: it could. From any thread.
  [[nodiscard]] std::string failure() const;
  // Writes sweep.csv anew, as a whole or not at all.
  void write_table(const SweepPlan& plan, const std::vector<TrialStatus>& status) const;

 private:
  void begin(const SweepOptions& options, const SweepPlan& plan, const std::string& header);
  void resume(const SweepOptions& options, const SweepPlan& plan, const std::string& header);
  void append(const std::string& line);

  std::filesystem::path root_;
  FileLock lock_;
  mutable std::mutex mutex_;
  AppendOnlyFile journal_;
  std::string failure_;
  std::vector<std::string> lines_;  // of an earlier process, without the header
};

}  // namespace muo::app
