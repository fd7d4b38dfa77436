#include "kit/sweep/finals.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kit/sweep/paired_test.h"
#include "kit/sweep/sweep_view.h"

namespace muo::kit {
namespace {

std::uint64_t largest_seed(const SweepPlan& plan) {
  std::uint64_t seed = 0;
  for (const Trial& trial : plan.trials)
    seed = std::max(seed, trial.options.seed);
  return seed;
}

}  // namespace

double level_of_each_test(std::size_t finalists, double confidence) {
  const auto pairs = static_cast<double>(finalists * (finalists - 1)) / 2;
  return (1 - confidence) / (pairs * kLooks.size());
}

std::vector<std::size_t> significantly_worse(std::span<const std::vector<double>> scores,
                                             double level) {
  std::vector<std::size_t> out;
  const auto is_finite = [&](std::size_t i) {
    return std::ranges::all_of(scores[i], [](double score) { return std::isfinite(score); });
  };
  const auto is_worse = [&](std::size_t one, std::size_t other) {
    if (!is_finite(one) || !is_finite(other)) return is_finite(other);
    std::vector<double> differences;
    for (std::size_t seed = 0; seed < scores[one].size(); ++seed)
      differences.push_back(scores[one][seed] - scores[other][seed]);
    return paired_test(differences, level).judgement == Judgement::kHigher;
  };
  for (std::size_t one = 0; one < scores.size(); ++one)
    for (std::size_t other = 0; other < scores.size(); ++other)
      if (one != other && is_worse(one, other)) {
        out.push_back(one);
        break;
      }
  return out;
}

Finals::Finals(const trainer::SweepOptions& options, SweepPlanner& planner, Scheduler& scheduler,
               SweepDirectory& directory)
    : options_(options),
      planner_(planner),
      scheduler_(scheduler),
      directory_(directory),
      first_seed_(largest_seed(planner.plan()) + 1) {}

void Finals::replay(const nlohmann::json& line) {
  const Point point = journal_point(line);
  trials_[sorted(point)] = planner_.add_final(point);
  scheduler_.add_trials();
}

std::string Finals::advance(const std::vector<TrialStatus>& status) {
  if (over_ ||
      !std::ranges::all_of(status, [](const TrialStatus& s) { return has_ended(s.state); }))
    return {};
  if (finalists_.empty()) choose(status);
  std::string news;
  while (!over_) {
    const auto seeds = static_cast<std::size_t>(kLooks.at(look_));
    over_ = remaining().size() < 2;
    if (over_ || add_missing(seeds)) break;
    news += judge(status, seeds);
    over_ = ++look_ == kLooks.size();
  }
  if (over_) scheduler_.close();
  return news;
}

void Finals::choose(const std::vector<TrialStatus>& status) {
  const SweepPlan& plan = planner_.plan();
  std::vector<PointScore> best = best_points(plan, status);
  std::erase_if(best, [&](const PointScore& each) { return each.depth != best.front().depth; });
  best.resize(std::min(best.size(), static_cast<std::size_t>(options_.finalists)));
  for (const PointScore& each : best) {
    finalists_.push_back({.trial = each.best_trial,
                          .point = without_seed(plan.trials[each.best_trial].point),
                          .scores = {}});
  }
}

Point Finals::with_seed(const Point& point, std::size_t index) const {
  Point out = point;
  out.push_back({"seed", std::to_string(first_seed_ + index)});
  return sorted(out);
}

// Returns false if there are trials of all these seeds.
bool Finals::add_missing(std::size_t seeds) {
  bool added = false;
  for (std::size_t seed = 0; seed < seeds; ++seed)
    for (const std::size_t i : remaining()) {
      Point point = with_seed(finalists_[i].point, seed);
      if (trials_.contains(point)) continue;
      const std::size_t number = planner_.add_final(point);
      directory_.add_trial(number, planner_.plan().trials[number]);
      trials_.emplace(std::move(point), number);
      added = true;
    }
  if (added) scheduler_.add_trials();
  return added;
}

std::string Finals::judge(const std::vector<TrialStatus>& status, std::size_t seeds) {
  const std::vector<std::size_t> in = remaining();
  std::vector<std::vector<double>> scores;
  for (const std::size_t i : in) {
    std::vector<double>& own = finalists_[i].scores;
    for (std::size_t seed = own.size(); seed < seeds; ++seed)
      own.push_back(status[trials_.at(with_seed(finalists_[i].point, seed))].last.score().value_or(
          std::numeric_limits<double>::infinity()));
    scores.push_back(own);
  }
  std::string news;
  const double level = level_of_each_test(finalists_.size(), options_.confidence);
  for (const std::size_t worse : significantly_worse(scores, level)) {
    Finalist& finalist = finalists_[in[worse]];
    finalist.is_out = true;
    news +=
        fmt::format("finals: after {} fresh seeds, trial {}'s point is worse than another  ({})\n",
                    seeds, finalist.trial, point_text(finalist.point));
  }
  return news;
}

std::vector<std::size_t> Finals::remaining() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < finalists_.size(); ++i)
    if (!finalists_[i].is_out) out.push_back(i);
  return out;
}

std::optional<Finals::Best> Finals::best() const {
  const std::vector<std::size_t> in = remaining();
  if (in.empty() || finalists_.size() < 2 || finalists_[in[0]].scores.empty()) return std::nullopt;
  const auto mean = [&](std::size_t i) {
    double sum = 0;
    for (const double score : finalists_[i].scores)
      sum += score;
    return sum / static_cast<double>(finalists_[i].scores.size());
  };
  const std::size_t best = *std::ranges::min_element(in, {}, mean);
  std::vector<std::string> undecided;
  for (const std::size_t i : in)
    if (i != best) undecided.push_back(std::to_string(finalists_[i].trial));
  return Best{finalists_[best].trial,
              fmt::format("finals: {} of {} points left after {} fresh seeds, at {:g} %: {}",
                          in.size(), finalists_.size(), finalists_[best].scores.size(),
                          100 * options_.confidence, best_text(undecided))};
}

}  // namespace muo::kit
