#include "kit/report/followed_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/threads.h"
#include "kit/report/html_report.h"
#include "kit/sweep/find_sweep.h"
#include "trainer/checkpoint/run_directory.h"

namespace muo::kit {
namespace {

namespace fs = std::filesystem;

bool has_begun(const fs::path& directory) {
  const trainer::RunDirectory run{.root = directory, .resume = {}};
  std::error_code error;
  return fs::exists(run.config(), error) || fs::exists(run.metrics(), error);
}

bool is_empty_directory(const fs::path& directory) {
  std::error_code error;
  return fs::is_directory(directory, error) && fs::is_empty(directory, error);
}

}  // namespace

FollowedRuns::FollowedRuns(std::vector<fs::path> given, std::chrono::milliseconds pause)
    : given_(std::move(given)), pause_(pause), server_(trainer::dated_name()) {
  for (const fs::path& directory : given_)
    if (!holds_sweep(directory) && !is_empty_directory(directory)) require_run(directory);
}

std::string FollowedRuns::changed_since(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  if (std::chrono::steady_clock::now() >= next_refresh_) refresh();
  std::string out = fmt::format(R"({{"server":"{}","version":{},"waiting":{},"grows":{},"runs":[)",
                                server_, version_, waiting_, grows_);
  const char* separator = "";
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].version <= version) continue;
    out += fmt::format("{}[{},{}]", std::exchange(separator, ",\n"), i, runs_[i].data);
  }
  return out + "]}";
}

void FollowedRuns::refresh() {
  find_runs();
  std::vector<std::size_t> changed = read_runs();
  name_runs(changed);
  if (!changed.empty()) ++version_;
  for_each_index(changed.size(), [&](std::size_t i) {
    Run& run = runs_[changed[i]];
    run.data = run_data(run.reader.history(), run.name, points_per_curve(runs_.size()));
    run.version = version_;
  });
  next_refresh_ = std::chrono::steady_clock::now() + pause_;
}

// Calls `work` with 0 to count - 1 on several threads. Throws Error after stop().
void FollowedRuns::for_each_index(std::size_t count,
                                  const std::function<void(std::size_t)>& work) const {
  const auto check_stopped = [this] {
    if (stopped_) throw Error("the server is stopping");
  };
  parallel_for(std::min(usable_cores(), 4), count, [&](std::size_t i) {
    check_stopped();
    work(i);
  });
  check_stopped();
}

void FollowedRuns::find_runs() {
  waiting_ = 0;
  for (const fs::path& directory : given_) {
    if (!holds_sweep(directory)) {
      if (!add(directory)) ++waiting_;
      continue;
    }
    grows_ = true;
    bool any = false;
    for (const fs::path& trial : entries_of(directory / "trials"))
      any = add(trial) || any;
    if (!any) ++waiting_;
  }
}

// Adds the run if it is new. Returns false if it has not begun.
bool FollowedRuns::add(const fs::path& directory) {
  if (known_.contains(directory)) return true;
  if (!has_begun(directory)) return false;
  std::error_code error;
  const bool is_new = known_.insert(fs::weakly_canonical(directory, error)).second;
  known_.insert(directory);
  if (is_new) runs_.push_back({.reader = RunReader(directory)});
  return true;
}

std::vector<std::size_t> FollowedRuns::read_runs() {
  // Not vector<bool>, because several threads write to it.
  std::vector<char> has_changed(runs_.size());
  for_each_index(runs_.size(), [&](std::size_t i) {
    has_changed[i] = runs_[i].reader.read() || runs_[i].version == 0 ? 1 : 0;
  });
  std::vector<std::size_t> changed;
  for (std::size_t i = 0; i < has_changed.size(); ++i)
    if (has_changed[i] != 0) changed.push_back(i);
  return changed;
}

// Names the runs: if a new run has the name of another, both get their full paths as names.
void FollowedRuns::name_runs(std::vector<std::size_t>& changed) {
  std::vector<fs::path> directories;
  for (const Run& run : runs_)
    directories.push_back(run.reader.history().directory);
  const std::vector<std::string> names = run_names(directories);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (runs_[i].name == names[i]) continue;
    runs_[i].name = names[i];
    if (std::ranges::find(changed, i) == changed.end()) changed.push_back(i);
  }
}

}  // namespace muo::kit
