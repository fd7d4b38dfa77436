#include "app/sweep/sweep_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text_table.h"

namespace muo {
namespace {

constexpr std::size_t kBest = 5;

bool has_ended(TrialState state) {
  return state != TrialState::kWaiting && state != TrialState::kRunning &&
         state != TrialState::kPaused;
}

std::string_view score_name(const TrialResult& result) {
  return result.val_bpb ? "bits/byte" : "loss";
}

std::string best_table(const SweepPlan& plan, const std::vector<TrialStatus>& status) {
  std::vector<std::size_t> best = best_trials(status);
  if (best.empty()) return {};
  best.resize(std::min(best.size(), kBest));
  std::vector<std::string> head = {"trial"};
  for (const Setting& setting : plan.trials.front().point)
    head.push_back(setting.option);
  head.insert(head.end(), {"step", "held-out " + std::string(score_name(status[best[0]].last))});
  Table table(std::move(head));
  for (const std::size_t trial : best) {
    std::vector<std::string> row = {fmt::format("{}", trial)};
    for (const Setting& setting : plan.trials[trial].point)
      row.push_back(setting.value);
    row.push_back(fmt::format("{}", status[trial].last.step));
    row.push_back(fmt::format("{:.4f}", *status[trial].last.score()));
    table.add(std::move(row));
  }
  return table.text();
}

}  // namespace

std::string point_text(const Point& point) {
  std::string out;
  for (const Setting& setting : point)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", setting.option, setting.value);
  return out;
}

std::vector<std::size_t> best_trials(const std::vector<TrialStatus>& status) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < status.size(); ++i)
    if (status[i].last.score() && status[i].state != TrialState::kDiverged &&
        status[i].state != TrialState::kFailed)
      out.push_back(i);
  std::ranges::stable_sort(out, {}, [&](std::size_t i) {
    return std::pair(-status[i].last.step, *status[i].last.score());
  });
  return out;
}

SweepView::SweepView(const SweepPlan& plan, int fd)
    : plan_(plan),
      terminal_(fd),
      shown_(plan.trials.size(), TrialState::kWaiting),
      shown_step_(plan.trials.size(), 0) {}

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
                     const std::vector<SweepRun::Running>& running, std::int64_t steps_left) {
  std::size_t ended = 0;
  for (std::size_t i = 0; i < status.size(); ++i) {
    const TrialStatus& now = status[i];
    if (has_ended(now.state)) ++ended;
    if (now.last.step != shown_step_[i])
      trained_ += std::max<std::int64_t>(0, now.last.step - shown_step_[i]);
    shown_step_[i] = now.last.step;
    if (now.state == shown_[i]) continue;
    shown_[i] = now.state;
    if (!has_ended(now.state)) continue;
    const auto score = now.last.score();
    const bool best = now.state == TrialState::kDone && score && (!best_ || *score < *best_);
    if (best) best_ = score;
    terminal_.lines(trial_line(i, now, best));
  }
  std::int64_t under_way = 0;
  std::vector<std::string> lines;
  for (const SweepRun::Running& each : running) {
    under_way += each.done - each.first;
    lines.push_back(fmt::format("trial {} trains: step {}/{}  ({})", each.trial, each.done,
                                each.until, point_text(plan_.trials[each.trial].point)));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  const auto done = static_cast<double>(trained_ + under_way);
  const std::string left =
      done == 0 ? "?" : duration_text(static_cast<double>(steps_left - under_way) * seconds / done);
  std::string text = fmt::format("{} of {} trials have ended, {} train, ETA {}", ended,
                                 status.size(), running.size(), left);
  if (best_ && !terminal_.is_live()) text += fmt::format(", best {:.4f}", *best_);
  if (terminal_.is_live())
    text = fmt::format("{}{}{}{}", best_table(plan_, status), fmt::join(lines, "\n"),
                       lines.empty() ? "" : "\n", text);
  terminal_.progress(text, /*urgent=*/false);
}

void SweepView::finish(const std::vector<TrialStatus>& status) {
  terminal_.clear();
  if (const std::string table = best_table(plan_, status); !table.empty()) terminal_.lines(table);
}

}  // namespace muo
