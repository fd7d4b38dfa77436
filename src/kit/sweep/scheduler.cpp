#include "kit/sweep/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace muo::kit {

Scheduler::Scheduler(const SweepPlan& plan, const Options& options, Promoted promoted)
    : plan_(plan), options_(options), promoted_(std::move(promoted)), open_(options.open) {
  add_trials_locked();
}

void Scheduler::add_trials() {
  const std::lock_guard lock(mutex_);
  add_trials_locked();
  changed_.notify_all();
}

void Scheduler::add_trials_locked() {
  for (std::size_t i = trials_.size(); i < plan_.trials.size(); ++i) {
    const Trial& trial = plan_.trials[i];
    TrialStatus& status = trials_.emplace_back();
    if (trial.config) continue;
    status.state = TrialState::kRefused;
    status.message = trial.refusal;
  }
}

void Scheduler::close() {
  const std::lock_guard lock(mutex_);
  open_ = false;
  changed_.notify_all();
}

std::int64_t length_done(const Trial& trial, const TrialStatus& status) {
  if (!trial.config || !trial.config->options.batch.time_budget) return status.step;
  return std::min<std::int64_t>(length_of(*trial.config), std::llround(1000 * status.last.seconds));
}

std::int64_t Scheduler::length_at(std::size_t trial, std::size_t rung) const {
  const Trial& each = plan_.trials[trial];
  return plan_.rungs.empty() || each.is_final ? length_of(*each.config) : plan_.rungs[rung];
}

void Scheduler::replay_result(std::size_t trial, const TrialResult& result) {
  const std::lock_guard lock(mutex_);
  // Without halving, a failure decides nothing, so the trial is tried again.
  if (result.state == TrialState::kFailed && plan_.rungs.empty()) return;
  replaying_ = true;
  set_result(trial, result);
  replaying_ = false;
}

// In a synchronous sweep, the replayed results have already caused the promotion.
void Scheduler::replay_promotion(std::size_t trial, std::size_t rung) {
  const std::lock_guard lock(mutex_);
  if (trials_[trial].rung >= rung) return;
  for (const std::vector<std::size_t>& point : plan_.points)
    if (point.front() == trial)
      for (const std::size_t other : point)
        promote(other);
}

void Scheduler::add_part(std::size_t trial, std::int64_t step, double seconds) {
  const std::lock_guard lock(mutex_);
  trials_[trial].step = step;
  trials_[trial].last.seconds += seconds;
}

std::optional<Scheduler::Segment> Scheduler::next_trial(int worker,
                                                        const std::function<void()>& waiting) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!stopped_) decide();
    if (stopped_) return std::nullopt;
    if (const auto trial = choose(worker)) {
      captured_.emplace(worker, plan_.trials[*trial].group);
      return begin(*trial);
    }
    if (!has_work()) return std::nullopt;
    changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (!waiting) continue;
    lock.unlock();
    waiting();
    lock.lock();
  }
}

void Scheduler::drop_group(int worker, std::size_t group) {
  const std::lock_guard lock(mutex_);
  captured_.erase({worker, group});
}

std::optional<Scheduler::Segment> Scheduler::take_waiting(std::size_t group) {
  const std::lock_guard lock(mutex_);
  const auto trial = first_waiting(group);
  return trial ? std::optional(begin(*trial)) : std::nullopt;
}

Scheduler::Segment Scheduler::begin(std::size_t trial) {
  TrialStatus& status = trials_[trial];
  status.state = TrialState::kRunning;
  return {.trial = trial, .rung = status.rung, .until = length_at(trial, status.rung)};
}

bool Scheduler::has_work() const {
  return open_ || any(TrialState::kRunning) || any(TrialState::kWaiting);
}

void Scheduler::finish(const Segment& segment, const TrialResult& result) {
  const std::lock_guard lock(mutex_);
  set_result(segment.trial, result);
  changed_.notify_all();
}

void Scheduler::requeue(const Segment& segment) {
  const std::lock_guard lock(mutex_);
  trials_[segment.trial].state = TrialState::kWaiting;
  changed_.notify_all();
}

bool Scheduler::cancel(std::size_t trial) {
  const std::lock_guard lock(mutex_);
  if (trials_[trial].state != TrialState::kWaiting) return false;
  trials_[trial].state = TrialState::kStopped;
  changed_.notify_all();
  return true;
}

void Scheduler::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

std::vector<TrialStatus> Scheduler::status() const {
  const std::lock_guard lock(mutex_);
  return trials_;
}

// Counts the way to the next rung of trials that wait or run, and, for points that halving has not
// decided on, the way from rung to rung of as many points as will be promoted.
std::int64_t Scheduler::length_left() const {
  const std::lock_guard lock(mutex_);
  std::int64_t left = 0;
  for (std::size_t i = 0; i < trials_.size(); ++i)
    if (trials_[i].state == TrialState::kWaiting || trials_[i].state == TrialState::kRunning)
      left += std::max<std::int64_t>(
          0, length_at(i, trials_[i].rung) - length_done(plan_.trials[i], trials_[i]));
  const auto is_undecided = [this](std::size_t trial) { return !has_ended(trials_[trial].state); };
  std::size_t coming = 0;  // points that will be promoted to the rung
  for (std::size_t rung = 0; rung + 1 < rungs(); ++rung) {
    std::size_t here = coming, undecided = coming, gone = 0;
    for (const std::vector<std::size_t>& point : plan_.points) {
      const std::size_t at = trials_[point.front()].rung;
      if (at > rung) ++gone;
      if (at != rung) continue;
      ++here;
      if (std::ranges::any_of(point, is_undecided)) ++undecided;
    }
    const std::size_t go_on =
        std::max<std::size_t>(1, (here + gone) / static_cast<std::size_t>(options_.factor));
    coming = std::min(undecided, go_on - std::min(go_on, gone));
    left += static_cast<std::int64_t>(coming * plan_.points.front().size()) *
            (plan_.rungs[rung + 1] - plan_.rungs[rung]);
  }
  return left;
}

void Scheduler::set_result(std::size_t trial, const TrialResult& result) {
  TrialStatus& status = trials_[trial];
  const double before = status.last.seconds;
  status.last = result;
  status.last.seconds += before;
  status.step = result.step;
  status.state = result.state;
  status.message = result.message;
  if (!options_.asynchronous) decide_rung();
}

void Scheduler::promote(std::size_t trial) {
  ++trials_[trial].rung;
  trials_[trial].state = TrialState::kWaiting;
}

bool Scheduler::promote_point(std::size_t point, std::size_t rung) {
  if (promoted_ && !replaying_ && !promoted_(plan_.points[point].front(), rung + 1)) {
    stopped_ = true;
    return false;
  }
  for (const std::size_t trial : plan_.points[point])
    promote(trial);
  return true;
}

std::vector<Scheduler::PointAt> Scheduler::points_at(std::size_t rung) const {
  std::vector<PointAt> out;
  for (std::size_t i = 0; i < plan_.points.size(); ++i) {
    PointAt at{.score = 0, .point = i};
    bool complete = true;
    for (const std::size_t trial : plan_.points[i]) {
      const TrialStatus& status = trials_[trial];
      const bool gone = status.rung > rung;
      const bool busy =
          status.state == TrialState::kWaiting || status.state == TrialState::kRunning;
      at.is_beyond = at.is_beyond || gone;
      complete = complete && (gone || (status.rung == rung && !busy));
      const auto score = status.last.score();
      // A point is never among the best unless all its trials have reached the rung with a score.
      if (!gone && status.state == TrialState::kPaused && score)
        at.score += *score / static_cast<double>(plan_.points[i].size());
      else
        at.score = std::numeric_limits<double>::infinity();
    }
    if (complete) out.push_back(at);
  }
  std::ranges::stable_sort(out, {}, &PointAt::score);
  return out;
}

// In asynchronous mode, promotes all that can be promoted now.
void Scheduler::decide() {
  if (!options_.asynchronous) return;
  while (promote_one(/*at_least_one=*/false)) {
  }
  if (stopped_ || any(TrialState::kWaiting) || any(TrialState::kRunning)) return;
  if (promote_one(/*at_least_one=*/true) || stopped_) return;
  for (TrialStatus& status : trials_)
    if (status.state == TrialState::kPaused) status.state = TrialState::kStopped;
}

// Promotes the best point that may be promoted, from the highest rung down. Returns false if there
// is none.
bool Scheduler::promote_one(bool at_least_one) {
  for (std::size_t rung = rungs() - 1; rung-- > 0;) {
    const std::vector<PointAt> points = points_at(rung);
    const auto gone = static_cast<std::size_t>(std::ranges::count_if(points, &PointAt::is_beyond));
    std::size_t most = points.size() / static_cast<std::size_t>(options_.factor);
    if (at_least_one) most = std::max<std::size_t>(1, most);
    if (gone >= most) continue;
    const auto best = std::ranges::find_if(
        points, [](const PointAt& at) { return !at.is_beyond && std::isfinite(at.score); });
    if (best == points.end()) continue;
    return promote_point(best->point, rung);
  }
  return false;
}

// In synchronous mode, if no trial waits or runs, promotes or stops the trials paused at the rung.
void Scheduler::decide_rung() {
  if (any(TrialState::kWaiting) || any(TrialState::kRunning) || !any(TrialState::kPaused)) return;
  std::size_t rung = 0;
  for (const TrialStatus& status : trials_)
    if (status.state == TrialState::kPaused) rung = std::max(rung, status.rung);
  std::vector<PointAt> points = points_at(rung);
  const std::size_t most =
      std::max<std::size_t>(1, points.size() / static_cast<std::size_t>(options_.factor));
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i < most && std::isfinite(points[i].score)) {
      if (!promote_point(points[i].point, rung)) return;
      continue;
    }
    for (const std::size_t trial : plan_.points[points[i].point])
      if (trials_[trial].state == TrialState::kPaused) trials_[trial].state = TrialState::kStopped;
  }
}

bool Scheduler::any(TrialState state) const {
  return std::ranges::any_of(trials_, [state](const TrialStatus& s) { return s.state == state; });
}

// Returns the trial that the worker should train next.
std::optional<std::size_t> Scheduler::choose(int worker) const {
  std::map<std::size_t, std::size_t> waiting;  // trials, by group
  for (std::size_t i = 0; i < trials_.size(); ++i)
    if (trials_[i].state == TrialState::kWaiting) ++waiting[plan_.trials[i].group];
  // The group with the smallest rank is chosen.
  const auto rank_of = [&](std::size_t group) {
    if (captured_.contains({worker, group}))
      return std::tuple(0, -static_cast<std::ptrdiff_t>(trials_[*first_waiting(group)].rung));
    const bool others =
        std::ranges::any_of(captured_, [&](const auto& pair) { return pair.second == group; });
    return std::tuple(others ? 2 : 1, -static_cast<std::ptrdiff_t>(waiting[group]));
  };
  std::optional<std::size_t> best;
  for (const auto& [group, count] : waiting)
    if (!best || rank_of(group) < rank_of(*best)) best = group;
  return best ? first_waiting(*best) : std::nullopt;
}

// Returns the group's first waiting trial at the highest rung, so that promoted trials come first.
std::optional<std::size_t> Scheduler::first_waiting(std::size_t group) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials_.size(); ++i)
    if (trials_[i].state == TrialState::kWaiting && plan_.trials[i].group == group &&
        (!best || trials_[i].rung > trials_[*best].rung))
      best = i;
  return best;
}

}  // namespace muo::kit
