#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kit/report/run_history.h"

namespace muo::kit {

struct TextReportOptions {
  int columns = 80;
  bool braille = false;  // draw with Unicode braille characters; else ASCII
};

// Results of a run. `last` and `best` are held-out values, in bits per byte if known.
struct RunSummary {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  std::string held_out;  // as in RunHistory
  std::string unit;
  std::int64_t steps = 0;
  std::int64_t evaluated = -1;  // steps at the last evaluation; -1: none
  double seconds = 0;
  std::optional<double> loss, last, best;
};
// The option's value; empty if the run's config.toml lacks it.
std::string value_in(const RunSummary& run, const std::string& option);
// The options in which other runs differ from the first, without the seed and bookkeeping.
std::vector<std::string> differing_options(std::span<const RunSummary> runs);
RunSummary summary_of(const RunHistory& run, const std::string& name);

// Returns a table of a sweep's trials, with the options in which they differ. The trials are sorted
// by steps, descending, then by held-out value, which is the mean of the trials that differ only in
// their seed.
std::string trial_table(std::span<const RunSummary> trials);

// Returns a warning if the held-out values of these runs cannot be compared because their data
// differ; otherwise empty.
std::string incomparable_text(std::span<const RunSummary> runs);

// Returns a report for a terminal: results, and small curves of loss, held-out loss (in bits per
// byte if known) and tokens per second by step. Each column spans from its lowest to its highest
// value, so that no spike is lost.
std::string text_report(const RunHistory& run, const std::string& name,
                        const TextReportOptions& options);

}  // namespace muo::kit
