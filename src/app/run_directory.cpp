#include "app/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fstream>
#include <optional>
#include <vector>

#include "app/config_file.h"
#include "base/check.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRuns = "runs";

std::optional<std::int64_t> checkpoint_step(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view kPrefix = "step_";
  std::error_code error;
  if (name.rfind(kPrefix, 0) != 0 || !fs::is_directory(path, error)) return {};
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, wrong] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (wrong != std::errc() || stop != end) return {};
  return step;
}

std::vector<fs::path> children(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  std::ranges::sort(out);
  return out;
}

// <run>/checkpoints/step_00000100 -> <run>; empty for a checkpoint that lies elsewhere.
fs::path run_of(const fs::path& checkpoint) {
  const fs::path parent = checkpoint.parent_path();
  if (parent.filename() != "checkpoints") return {};
  return parent.has_parent_path() ? parent.parent_path() : fs::path(".");
}

// Of runs/: names begin with the date.
fs::path newest_run_with_checkpoint() {
  const std::vector<fs::path> runs = children(kRuns);
  const auto found = std::find_if(runs.rbegin(), runs.rend(), [](const fs::path& run) {
    return !newest_checkpoint(run).empty();
  });
  return found == runs.rend() ? fs::path() : *found;
}

bool holds_run(const fs::path& directory) {
  const RunDirectory run{directory, {}};
  std::error_code error;
  return fs::exists(run.config(), error) || fs::exists(run.metrics(), error) ||
         !newest_checkpoint(directory).empty();
}

fs::path fresh_run(const TrainOptions& options) {
  if (options.out.empty()) {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    return fs::path(kRuns) / fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::gmtime(now), getpid());
  }
  std::error_code error;
  if (fs::exists(options.out, error) && !fs::is_directory(options.out, error))
    throw InputError(fmt::format("--out {}: exists and is not a directory", options.out));
  if (holds_run(options.out))
    throw InputError(
        fmt::format("--out {}: holds a run already: give another directory, or --resume auto to "
                    "continue that run",
                    options.out));
  return options.out;
}

}  // namespace

fs::path newest_checkpoint(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  if (checkpoint_step(clean)) return clean;
  fs::path newest;
  std::int64_t most = -1;
  for (const fs::path& child : children(clean / "checkpoints")) {
    const auto step = checkpoint_step(child);
    if (!step || *step <= most) continue;
    most = *step;
    newest = child;
  }
  return newest;
}

RunDirectory find_run_directory(const TrainOptions& options) {
  if (options.resume.empty()) return {fresh_run(options), {}};
  if (options.resume == "auto") {
    const fs::path run = options.out.empty() ? newest_run_with_checkpoint() : fs::path(options.out);
    if (run.empty()) return {fresh_run(options), {}};
    return {run, newest_checkpoint(run)};
  }
  const fs::path checkpoint = newest_checkpoint(options.resume);
  if (checkpoint.empty())
    throw InputError(
        fmt::format("--resume {}: no checkpoint there: give a run directory that holds "
                    "checkpoints/step_<number>, or such a checkpoint",
                    options.resume));
  const fs::path home = run_of(checkpoint);
  if (home.empty()) return {fresh_run(options), checkpoint};
  std::error_code error;
  if (options.out.empty() || fs::equivalent(home, options.out, error)) return {home, checkpoint};
  return {fresh_run(options), checkpoint};
}

void create_run_directory(const RunDirectory& run, const TrainOptions& resolved) {
  std::error_code error;
  fs::create_directories(run.checkpoints(), error);
  if (error)
    throw InputError(
        fmt::format("--out {}: cannot make it: {}", run.root.string(), error.message()));
  TrainOptions options = resolved;
  std::ofstream out(run.config(), std::ios::trunc);
  out << "# Every option of this run, as resolved: muograph train --config reads it back.\n\n"
      << config_text(option_table(options));
  out.close();
  if (!out)
    throw InputError(fmt::format("--out {}: cannot write config.toml: {}", run.root.string(),
                                 std::generic_category().message(errno)));
}

}  // namespace muo
