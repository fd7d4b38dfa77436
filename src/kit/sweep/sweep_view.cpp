#include "kit/sweep/sweep_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text_table.h"
#include "kit/sweep/comparison.h"
#include "trainer/options/option_row.h"

namespace muo::kit {
namespace {

constexpr std::size_t kMaxRows = 5;

std::string_view score_name(const TrialResult& result) {
  return result.val_bpb ? "bits/byte" : "loss";
}

std::string best_table(const SweepPlan& plan, const std::vector<TrialStatus>& status) {
  std::vector<PointScore> best = best_points(plan, status);
  if (best.empty()) return {};
  best.resize(std::min(best.size(), kMaxRows));
  const bool seeds = plan.points.front().size() > 1;
  std::vector<std::string> head = {seeds ? "trials" : "trial"};
  std::vector<std::string> varied = varied_options(plan);
  if (seeds) std::erase(varied, "seed");
  head.insert(head.end(), varied.begin(), varied.end());
  head.insert(head.end(),
              {"step", fmt::format("held-out {}{}", score_name(status[best[0].best_trial].last),
                                   seeds ? ", mean" : "")});
  if (seeds) head.emplace_back("spread");
  Table table(std::move(head));
  for (const PointScore& each : best) {
    const std::vector<std::size_t>& trials = plan.points[each.point];
    std::vector<std::string> row = {fmt::format("{}", trials.front())};
    if (trials.back() - trials.front() + 1 != trials.size())  // seeds were added when resuming
      row[0] = fmt::format("{}", fmt::join(trials, ","));
    else if (trials.size() > 1)
      row[0] += fmt::format("-{}", trials.back());
    for (const std::string& option : varied)
      row.push_back(trainer::short_value(value_in(plan.trials[trials.front()].point, option)));
    row.push_back(fmt::format("{}", each.step));
    row.push_back(fmt::format("{:.4f}", each.mean));
    if (seeds) row.push_back(fmt::format("{:.4f}", each.spread));
    table.add(std::move(row));
  }
  return table.text();
}

}  // namespace

std::string certainty_text(const SweepPlan& plan, const std::vector<TrialStatus>& status,
                           double confidence) {
  std::vector<RunGroup> groups;
  const std::vector<PointScore> best = best_points(plan, status);
  for (const PointScore& each : best) {
    if (each.depth != best[0].depth) break;
    const std::vector<std::size_t>& trials = plan.points[each.point];
    RunGroup& group = groups.emplace_back();
    group.name = std::to_string(trials.front());
    for (const std::size_t trial : trials)
      group.scores.emplace(value_in(plan.trials[trial].point, "seed"), *status[trial].last.score());
  }
  if (groups.size() < 2) return {};
  if (groups[0].scores.size() < 2)
    return "certainty: unknown, as each point has one seed: --seed 1..4 tells gains from chance";
  const GroupComparison comparison =
      compare_groups("", std::move(groups), confidence, Baseline::kBest);
  std::vector<std::string> open;
  for (std::size_t i = 0; i < comparison.tests.size(); ++i)
    if (comparison.tests[i].judgement != Judgement::kHigher)
      open.push_back(comparison.groups[i + 1].name);
  const std::string how = fmt::format("at {:g} %, in pairs of equal seeds", 100 * confidence);
  return fmt::format("certainty: {}, {}", how, best_text(open));
}

std::string best_text(const std::vector<std::string>& undecided) {
  if (undecided.empty()) return "the best is better than all others";
  const std::string_view plural = undecided.size() == 1 ? "" : "s";
  return fmt::format("the best is not told apart from the point{} of trial{} {}", plural, plural,
                     fmt::join(undecided, ", "));
}

std::string length_text(const SweepPlan& plan, std::int64_t length) {
  if (!plan.is_timed) return std::to_string(length);
  const double seconds = static_cast<double>(length) / 1000;
  return seconds < 60 ? fmt::format("{:.3g}s", seconds) : duration_text(seconds);
}

std::string point_text(const Point& point) {
  std::string out;
  for (const Setting& setting : point)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", setting.option,
                       trainer::short_value(setting.value));
  return out;
}

std::vector<PointScore> best_points(const SweepPlan& plan, const std::vector<TrialStatus>& status) {
  std::vector<PointScore> out;
  for (std::size_t point = 0; point < plan.points.size(); ++point) {
    const std::vector<std::size_t>& trials = plan.points[point];
    const auto depth_of = [&](std::size_t trial) {
      const TrialStatus& each = status[trial];
      const bool between = each.state == TrialState::kWaiting || each.state == TrialState::kRunning;
      return !plan.is_timed ? each.last.step
                            : static_cast<std::int64_t>(each.rung) - (between ? 1 : 0);
    };
    const std::int64_t depth = depth_of(trials.front());
    if (std::ranges::any_of(trials, [&](std::size_t trial) {
          return !status[trial].last.score() || depth_of(trial) != depth;
        }))
      continue;
    const auto score = [&](std::size_t trial) { return *status[trial].last.score(); };
    const auto count = static_cast<double>(trials.size());
    PointScore result{
        .point = point, .depth = depth, .best_trial = *std::ranges::min_element(trials, {}, score)};
    result.step = status[result.best_trial].last.step;
    for (const std::size_t trial : trials)
      result.mean += score(trial) / count;
    for (const std::size_t trial : trials)
      result.spread += std::pow(score(trial) - result.mean, 2);
    result.spread = trials.size() > 1 ? std::sqrt(result.spread / (count - 1)) : 0;
    out.push_back(result);
  }
  std::ranges::stable_sort(
      out, {}, [](const PointScore& each) { return std::pair(-each.depth, each.mean); });
  return out;
}

SweepView::SweepView(const SweepPlan& plan, int fd, Clock::time_point now)
    : plan_(plan), terminal_(fd), started_(now) {}

std::string SweepView::trial_line(std::size_t trial, const TrialStatus& status, bool best) const {
  const TrialResult& last = status.last;
  std::string out = fmt::format("trial {}", trial);
  if (status.state != TrialState::kDone) out += fmt::format(" {}", name_of(status.state));
  if (last.score())
    out +=
        fmt::format(": held-out {} {:.4f} at step {}", score_name(last), *last.score(), last.step);
  if (!status.message.empty()) out += ": " + status.message;
  return out + fmt::format("  ({}){}", point_text(plan_.trials[trial].point),
                           best ? "  best so far" : "");
}

void SweepView::show(const std::vector<TrialStatus>& status,
                     const std::vector<SweepRun::Running>& running, std::int64_t length_left,
                     Clock::time_point now) {
  if (shown_length_.empty())  // steps of earlier processes took no time since started_
    for (const TrialStatus& before : status)
      shown_length_.push_back(length_done(plan_.trials[shown_length_.size()], before));
  shown_.resize(status.size(), TrialState::kWaiting);
  shown_length_.resize(status.size(), 0);
  std::size_t ended = 0, paused = 0;
  for (std::size_t i = 0; i < status.size(); ++i) {
    const TrialStatus& trial = status[i];
    if (has_ended(trial.state)) ++ended;
    if (trial.state == TrialState::kPaused) ++paused;
    const std::int64_t done = length_done(plan_.trials[i], trial);
    trained_ += std::max<std::int64_t>(0, done - shown_length_[i]);
    shown_length_[i] = done;
    if (trial.state == shown_[i]) continue;
    shown_[i] = trial.state;
    if (!has_ended(trial.state)) continue;
    const auto score = trial.last.score();
    const bool best = trial.state == TrialState::kDone && score && (!best_ || *score < *best_);
    if (best) best_ = score;
    terminal_.lines(trial_line(i, trial, best));
  }
  if (ended == 0 && running.empty()) return;  // workers are still capturing
  std::int64_t under_way = 0;
  std::vector<std::string> lines;
  for (const SweepRun::Running& each : running) {
    under_way += each.done - each.first;
    lines.push_back(fmt::format("trial {} running: {}{}/{}  ({})", each.trial,
                                plan_.is_timed ? "" : "step ", length_text(plan_, each.done),
                                length_text(plan_, each.until),
                                point_text(plan_.trials[each.trial].point)));
  }
  std::string text =
      fmt::format("{} of {} trials ended, {}{} running, {}", ended, status.size(),
                  paused > 0 ? fmt::format("{} paused at a rung, ", paused) : "", running.size(),
                  eta_text(static_cast<double>(length_left - under_way),
                           static_cast<double>(trained_ + under_way),
                           std::chrono::duration<double>(now - started_).count()));
  if (!terminal_.is_live())
    if (const std::vector<PointScore> best = best_points(plan_, status); !best.empty())
      text += fmt::format(", best {:.4f} at step {}", best[0].mean, best[0].step);
  if (terminal_.is_live())
    text = fmt::format("{}{}{}{}", best_table(plan_, status), fmt::join(lines, "\n"),
                       lines.empty() ? "" : "\n", text);
  terminal_.progress(text, /*urgent=*/false, now);
}

void SweepView::finish(const std::vector<TrialStatus>& status) {
  terminal_.clear();
  if (const std::string table = best_table(plan_, status); !table.empty()) terminal_.lines(table);
}

}  // namespace muo::kit
