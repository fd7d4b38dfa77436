#include "kit/report/run_groups.h"

#include <fmt/format.h>

#include <map>

#include "base/duration.h"
#include "base/terminal.h"
#include "trainer/options/option_row.h"

namespace muo::kit {
namespace {

// True if the run has trained for its number of steps or, but for the length of a step, its time.
bool is_complete(const RunSummary& run) {
  const auto steps = trainer::whole_number(value_in(run, "num-iterations"));
  const auto budget = parse_duration(value_in(run, "time-budget"));
  return (steps && run.steps == *steps) || (budget && run.seconds > 0.9 * budget->seconds) ||
         (!steps && !budget);
}

void add_run(const RunSummary& run, RunGroup& group, std::vector<std::string>& notes) {
  const std::string seed = value_in(run, "seed");
  if (!is_complete(run))
    notes.push_back(fmt::format("{} is left out: it ended early, at step {}", run.name, run.steps));
  else if (!run.last || run.evaluated != run.steps)
    notes.push_back(fmt::format("{} is left out: it has no evaluation at its last step", run.name));
  else if (!group.scores.emplace(seed, *run.last).second)
    notes.push_back(
        fmt::format("{} is left out: it repeats seed {} of {}", run.name, seed, group.name));
}

std::vector<std::string> values_of(const RunSummary& run, std::span<const std::string> options) {
  std::vector<std::string> out;
  for (const std::string& option : options)
    out.push_back(value_in(run, option));
  return out;
}

}  // namespace

std::vector<RunGroup> group_runs(std::span<const RunSummary> runs,
                                 std::vector<std::string>& notes) {
  const std::vector<std::string> varied = differing_options(runs);
  std::vector<RunGroup> groups;
  std::map<std::vector<std::string>, std::size_t> found;
  for (const RunSummary& run : runs) {
    const std::vector<std::string> values = values_of(run, varied);
    const auto [at, is_new] = found.emplace(values, groups.size());
    if (is_new) {
      RunGroup& group = groups.emplace_back();
      for (std::size_t i = 0; i < varied.size(); ++i)
        group.name += fmt::format("{}{} {}", i == 0 ? "" : ", ", varied[i],
                                  printable(trainer::short_value(values[i])));
      if (varied.empty()) group.name = run.name;
    }
    add_run(run, groups[at->second], notes);
  }
  std::erase_if(groups, [](const RunGroup& group) { return group.scores.empty(); });
  return groups;
}

RunGroup one_group(std::span<const RunSummary> runs, std::vector<std::string>& notes) {
  RunGroup group;
  group.name = runs.front().name;
  if (runs.size() > 1) group.name += fmt::format(" and {} more", runs.size() - 1);
  for (const RunSummary& run : runs)
    add_run(run, group, notes);
  return group;
}

}  // namespace muo::kit
