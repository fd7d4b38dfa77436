#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/report/run_history.h"

namespace muo::app {

struct TextReportOptions {
  int columns = 80;
  bool braille = false;  // dots of UTF-8's braille characters; else ASCII
};

// What came of a run. `last`, `best`: held out, in bits per byte where they are known.
struct RunSummary {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  std::string held_out;  // as in RunHistory
  std::string unit;
  std::int64_t steps = 0;
  double seconds = 0;
  std::optional<double> loss, last, best;
};
RunSummary summary_of(const RunHistory& run, const std::string& name);

// The trials of a sweep, with the options in which they differ: those that have come farthest
// first, then the best, by the mean of trials that differ in their seed only.
std::string trial_table(std::span<const RunSummary> trials);

// That held-out values of these runs do not compare, as their data are others; empty: they do.
std::string unlike_text(std::span<const RunSummary> runs);

// A run for a terminal: what came out, and small curves of loss, held-out loss (in bits per byte
// where they are known) and tokens per second by step. Each column shows all that is in it from the
// lowest to the highest value, so that no spike is lost.
std::string text_report(const RunHistory& run, const std::string& name,
                        const TextReportOptions& options);

}  // namespace muo::app
