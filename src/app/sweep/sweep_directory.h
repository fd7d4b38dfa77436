#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "app/checkpoint/durable_files.h"
#include "app/sweep/scheduler.h"
#include "base/file_descriptor.h"

namespace muo {

// <root>/sweep.toml      what `sweep --config` reads back
// <root>/sweep.jsonl     the journal: what was decided and came out, in its order
// <root>/sweep.csv       a row for each trial
// <root>/trials/0007/    a run directory like that of any `train` (run_directory.h)
// <root>/run.lock
class SweepDirectory {
 public:
  // Opens the directory of the options: a new one, or with --resume one that is there. Locks it.
  // `data`: data_identity(). Throws InputError for one that holds a sweep, or another one than is
  // asked for (naming the option that differs).
  SweepDirectory(const SweepOptions& options, const SweepPlan& plan, const std::string& data);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] std::filesystem::path trial(std::size_t number) const;
  [[nodiscard]] bool is_resumed() const { return !lines_.empty(); }

  // Gives what the journal holds to the scheduler, its trials to `add_trial`, if any is given: the
  // sweep's plan does not have them. Throws InputError for lines that do not fit.
  void replay(Scheduler& scheduler,
              const std::function<void(const nlohmann::json& line)>& add_trial = {}) const;
  // Appends to the journal; each call is one write. From any thread. Throws Error.
  void add_trial(std::size_t number, const Trial& trial);
  void add_result(std::size_t trial, std::size_t rung, const TrialResult& result);
  void add_promotion(std::size_t trial, std::size_t rung);
  // Writes sweep.csv anew, as a whole or not at all.
  void write_table(const SweepPlan& plan, const std::vector<TrialStatus>& status) const;

 private:
  void begin(const SweepOptions& options, const SweepPlan& plan, const std::string& header);
  void resume(const std::string& header);
  void append(const std::string& line);

  std::filesystem::path root_;
  FileLock lock_;
  std::mutex mutex_;
  FileDescriptor journal_;
  std::vector<std::string> lines_;  // of an earlier process, without the header
};

}  // namespace muo
