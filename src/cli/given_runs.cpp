#include "cli/given_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <system_error>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/terminal.h"
#include "kit/report/run_reader.h"
#include "kit/sweep/find_sweep.h"

namespace muo::cli {

namespace fs = std::filesystem;

void note(const std::string& text) { say(stderr, fmt::format("muograph: note: {}\n", text)); }

std::vector<fs::path> runs_of(const std::vector<fs::path>& given) {
  std::vector<fs::path> out;
  for (const fs::path& directory : given) {
    if (!kit::holds_sweep(directory)) {
      out.push_back(directory);
      continue;
    }
    std::vector<fs::path> trials = entries_of(directory / "trials");
    std::erase_if(trials, [](const fs::path& trial) { return !fs::exists(trial / "config.toml"); });
    if (trials.empty())
      throw InputError(fmt::format("{}: no trial of this sweep has started", directory.string()));
    std::ranges::move(trials, std::back_inserter(out));
  }
  return out;
}

std::vector<fs::path> without_duplicates(const std::vector<fs::path>& runs) {
  std::vector<fs::path> out, seen;
  for (const fs::path& run : runs) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(run, error);
    if (std::ranges::find(seen, real) != seen.end()) {
      note(fmt::format("{} is given more than once", run.string()));
      continue;
    }
    seen.push_back(real);
    out.push_back(run);
  }
  return out;
}

kit::RunHistory read_noted(const fs::path& directory) {
  kit::RunHistory history = kit::read_run(directory);
  for (const std::string& line : history.notes)
    note(fmt::format("{}: {}", directory.string(), line));
  return history;
}

}  // namespace muo::cli
