#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/given_runs.h"
#include "kit/report/html_report.h"
#include "kit/report/run_groups.h"
#include "kit/sweep/find_sweep.h"
#include "trainer/options/option_row.h"

namespace muo::cli {
namespace {

namespace fs = std::filesystem;

std::vector<kit::RunSummary> summaries_of(const std::vector<fs::path>& given) {
  const std::vector<fs::path> runs = without_duplicates(runs_of(given));
  const std::vector<std::string> names = kit::run_names(runs);
  std::vector<kit::RunSummary> out;
  for (std::size_t i = 0; i < runs.size(); ++i)
    out.push_back(kit::summary_of(read_noted(runs[i]), printable(names[i])));
  return out;
}

}  // namespace

int run_command(const trainer::CompareOptions& options) {
  std::vector<kit::RunSummary> runs = summaries_of(options.runs);
  const std::string unit = runs.front().unit;
  std::vector<std::string> notes;
  std::vector<kit::RunGroup> groups;
  // A sweep has no first run to compare the others with.
  const bool is_sweep =
      options.with.empty() && options.runs.size() == 1 && kit::holds_sweep(options.runs.front());
  if (options.with.empty()) {
    groups = kit::group_runs(runs, notes);
  } else {
    std::vector<kit::RunSummary> others = summaries_of(options.with);
    groups = {kit::one_group(others, notes), kit::one_group(runs, notes)};
    std::ranges::move(others, std::back_inserter(runs));
  }
  for (const std::string& text : notes)
    note(text);
  if (const std::string text = kit::incomparable_text(runs); !text.empty())
    throw InputError("compare: " + text);
  for (const kit::RunGroup& group : groups)
    if (group.scores.empty())
      throw trainer::input_error("compare: no run of {} has an evaluation at its end", group.name);
  if (groups.size() < 2)
    throw InputError(
        "compare: all runs have the same options, but for their seeds: give those to compare with "
        "by --with RUN...");
  const kit::GroupComparison comparison =
      kit::compare_groups(unit, std::move(groups), options.confidence,
                          is_sweep ? kit::Baseline::kBest : kit::Baseline::kGiven);
  say(stdout, options.json ? kit::comparison_json(comparison) : kit::comparison_text(comparison));
  return 0;
}

}  // namespace muo::cli
