#include "kit/sweep/find_sweep.h"

#include "trainer/checkpoint/run_directory.h"
#include "trainer/options/option_row.h"

namespace muo::kit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSweeps = "sweeps";

fs::path new_sweep(const std::string& out) {
  if (out.empty()) return fs::path(kSweeps) / trainer::dated_name();
  std::error_code error;
  if (fs::exists(out, error) && !fs::is_directory(out, error))
    throw trainer::input_error("--out {}: exists and is not a directory", out);
  if (fs::exists(fs::path(out) / "config.toml", error))
    throw trainer::input_error("--out {}: holds a run: give another directory", out);
  return out;
}

}  // namespace

bool holds_sweep(const fs::path& directory) {
  std::error_code error;
  const auto bytes = fs::file_size(directory / "sweep.jsonl", error);
  return !error && bytes > 0;
}

fs::path find_sweep_directory(const trainer::RunOptions& options) {
  if (options.resume.empty()) {
    if (!options.out.empty() && holds_sweep(options.out))
      throw trainer::input_error(
          "--out {}: holds a sweep already: give another directory, or --resume auto to continue "
          "it",
          options.out);
    return new_sweep(options.out);
  }
  if (options.resume != "auto") {
    if (!holds_sweep(options.resume))
      throw trainer::input_error("--resume {}: no sweep there (no sweep.jsonl)", options.resume);
    return options.resume;
  }
  if (!options.out.empty())
    return holds_sweep(options.out) ? fs::path(options.out) : new_sweep(options.out);
  const fs::path newest = trainer::newest_in(
      kSweeps, [](const fs::path& sweep) { return trainer::written_at(sweep / "sweep.jsonl"); });
  return newest.empty() ? new_sweep({}) : newest;
}

}  // namespace muo::kit
