#include "trainer/checkpoint/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "base/check.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/options/config_file.h"
#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRuns = "runs";

// Checks the name only; opening a checkpoint shows whether it is complete.
bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  return path.filename().string().rfind("step_", 0) == 0 && fs::is_directory(path, error);
}

bool has_checkpoint(const fs::path& run) {
  return std::ranges::any_of(entries_of(run / "checkpoints"), is_checkpoint);
}

// Returns <run> for <run>/checkpoints/step_00000100; empty for a checkpoint elsewhere.
fs::path run_of(const fs::path& checkpoint) {
  const fs::path parent = checkpoint.parent_path();
  if (parent.filename() != "checkpoints") return {};
  return parent.has_parent_path() ? parent.parent_path() : fs::path(".");
}

// Returns the time of the newest checkpoint; empty if there is none.
std::optional<fs::file_time_type> saved_at(const fs::path& run) {
  std::optional<fs::file_time_type> newest;
  for (const fs::path& path : entries_of(run / "checkpoints"))
    if (is_checkpoint(path)) newest = std::max(newest, written_at(path / kManifestName));
  return newest;
}

bool holds_run(const fs::path& directory) {
  const RunDirectory run{directory, {}};
  std::error_code error;
  return fs::exists(run.config(), error) || fs::exists(run.metrics(), error) ||
         has_checkpoint(directory);
}

fs::path fresh_run(const TrainOptions& options) {
  if (options.run.out.empty()) return fs::path(kRuns) / dated_name();
  std::error_code error;
  if (fs::exists(options.run.out, error) && !fs::is_directory(options.run.out, error))
    throw input_error("--out {}: exists and is not a directory", options.run.out);
  if (holds_run(options.run.out))
    throw input_error(
        "--out {}: holds a run already: give another directory, or --resume auto to "
        "continue that run",
        options.run.out);
  return options.run.out;
}

}  // namespace

std::optional<fs::file_time_type> written_at(const fs::path& file) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(file, error);
  return error ? std::nullopt : std::optional(time);
}

fs::path newest_in(const fs::path& folder,
                   const std::function<std::optional<fs::file_time_type>(const fs::path&)>& time) {
  fs::path newest;
  std::optional<fs::file_time_type> newest_time;
  for (const fs::path& entry : entries_of(folder))
    if (const auto at = time(entry); at && at >= newest_time) {
      newest = entry;
      newest_time = at;
    }
  return newest;
}

std::string dated_name() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::gmtime(now), getpid());
}

RunDirectory find_run_directory(const TrainOptions& options) {
  if (options.run.resume.empty()) return {fresh_run(options), {}};
  if (options.run.resume == "auto") {
    const fs::path run =
        options.run.out.empty() ? newest_in(kRuns, saved_at) : fs::path(options.run.out);
    if (run.empty() || !holds_run(run)) return {fresh_run(options), {}};
    return {run, run, run};
  }
  const fs::path given = named_checkpoint(options.run.resume);
  if (!is_checkpoint(given) && !has_checkpoint(given))
    throw input_error(
        "--resume {}: no checkpoint there: give a run directory with checkpoints/step_<number>, or "
        "such a checkpoint",
        options.run.resume);
  const fs::path home = is_checkpoint(given) ? run_of(given) : given;
  std::error_code error;
  const bool same = options.run.out.empty() || fs::equivalent(home, options.run.out, error);
  if (home.empty() || !same) return {fresh_run(options), given, home};
  return {home, given, home};
}

fs::path folder_of_run(const TrainOptions& options) {
  if (options.run.out.empty() && (options.run.resume.empty() || options.run.resume == "auto"))
    return kRuns;
  const fs::path root =
      options.run.out.empty() ? find_run_directory(options).root : fs::path(options.run.out);
  return (fs::absolute(root) / "").lexically_normal().parent_path().parent_path();
}

FileLock lock_run_directory(const RunDirectory& run) {
  std::error_code error;
  if (!fs::is_directory(run.root, error)) return {};
  const fs::path file = run.root / "run.lock";
  // A killed process may take a while to end.
  for (int tries = 20;; --tries) {
    std::string holder;
    FileLock lock = FileLock::try_file(file, holder);
    if (holder.empty()) {
      if (lock) remove_temporaries(run.root);
      return lock;
    }
    if (tries == 0)
      throw input_error(
          "--out {}: in use by {}, which holds {}: wait until it ends, end it, or give another "
          "directory",
          run.root.string(), holder, file.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void create_run_directory(const RunDirectory& run, const TrainOptions& resolved, FileLock& lock) {
  make_directories(run.root);
  make_directories(run.checkpoints());
  if (!lock) {
    lock = lock_run_directory(run);
    // Another process may have begun and ended a run since find_run_directory().
    if (run.resume.empty()) fresh_run(resolved);
  }
  TrainOptions options = resolved;
  replace_file(
      run.config(),
      "# All options of this run, as resolved; muograph train --config reads them back.\n\n" +
          config_text(option_table(options)));
}

}  // namespace muo::trainer
