#include "kit/sweep/comparison.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/json_text.h"
#include "base/text_table.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

std::string seeds_needed_text(const PairedTest& test, double alpha) {
  if (test.judgement != Judgement::kUndecided) return "";
  if (test.pairs < 2) return ": needs two seeds in common";
  const std::optional<int> needed = pairs_needed(test, alpha);
  return needed ? fmt::format(": might be with {} seeds", *needed)
                : fmt::format(": would need over {} seeds", kMaxPairs);
}

}  // namespace

double RunGroup::mean() const {
  double sum = 0;
  for (const auto& [seed, score] : scores)
    sum += score;
  return sum / static_cast<double>(scores.size());
}

GroupComparison compare_groups(std::string unit, std::vector<RunGroup> groups, double confidence,
                               Baseline baseline) {
  GroupComparison out;
  out.unit = std::move(unit);
  out.groups = std::move(groups);
  if (baseline == Baseline::kBest) std::ranges::stable_sort(out.groups, {}, &RunGroup::mean);
  const auto others = static_cast<double>(out.groups.size()) - 1;
  const double tests = baseline == Baseline::kBest ? others * (others + 1) / 2 : others;
  out.alpha = (1 - confidence) / std::max(1.0, tests);
  for (std::size_t i = 1; i < out.groups.size(); ++i) {
    std::vector<double> differences;
    for (const auto& [seed, score] : out.groups[i].scores)
      if (const auto other = out.groups[0].scores.find(seed); other != out.groups[0].scores.end())
        differences.push_back(score - other->second);
    out.tests.push_back(paired_test(differences, out.alpha));
  }
  return out;
}

std::string comparison_text(const GroupComparison& comparison) {
  Table table({"", "seeds", "held-out " + comparison.unit, "difference",
               fmt::format("{:.4g} % interval", 100 * (1 - comparison.alpha)), "p", ""});
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const RunGroup& group = comparison.groups[i];
    std::vector<std::string> row = {group.name, std::to_string(group.scores.size()),
                                    fmt::format("{:.4f}", group.mean())};
    if (i == 0) {
      row.resize(7);
      row.back() = "the others are compared with it";
    } else {
      const PairedTest& test = comparison.tests[i - 1];
      const bool known = test.pairs > 1;
      row.push_back(test.pairs == 0 ? "-" : fmt::format("{:+.4f}", test.mean));
      row.push_back(known ? fmt::format("{:+.4f} to {:+.4f}", test.low, test.high) : "-");
      row.push_back(known ? fmt::format("{:.2g}", test.p) : "-");
      row.push_back(std::string(name_of(test.judgement)) +
                    seeds_needed_text(test, comparison.alpha));
    }
    table.add(std::move(row));
  }
  std::string out = table.text();
  if (comparison.tests.size() > 1)
    out += fmt::format("better, worse: p below {:.2g}, as there are several comparisons\n",
                       comparison.alpha);
  return out;
}

std::string comparison_json(const GroupComparison& comparison) {
  Json groups = Json::array();
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const RunGroup& group = comparison.groups[i];
    Json& json = groups.emplace_back(
        Json{{"name", group.name}, {"scores", group.scores}, {"mean", group.mean()}});
    if (i == 0) continue;
    const PairedTest& test = comparison.tests[i - 1];
    json["pairs"] = test.pairs;
    json["difference"] = test.mean;
    json["deviation"] = test.deviation;
    if (test.pairs > 1) json["interval"] = {test.low, test.high};
    json["p"] = test.p;
    json["judgement"] = name_of(test.judgement);
    if (const auto needed = pairs_needed(test, comparison.alpha)) json["pairs_needed"] = *needed;
  }
  return json_text(Json{{"unit", comparison.unit}, {"alpha", comparison.alpha}, {"groups", groups}},
                   2) +
         "\n";
}

}  // namespace muo::kit
