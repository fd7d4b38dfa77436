#include "app/sweep/scheduler.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/check.h"

namespace muo {

Scheduler::Scheduler(const SweepPlan& plan, const Options& options, Promoted promoted)
    : plan_(plan),
      options_(options),
      promoted_(std::move(promoted)),
      trials_(plan.trials.size()),
      entered_(rungs()),
      promotions_(rungs(), 0),
      serving_(plan.groups.size(), 0) {
  for (std::size_t i = 0; i < trials_.size(); ++i)
    if (!plan.trials[i].config) {
      trials_[i].state = TrialState::kRefused;
      trials_[i].message = plan.trials[i].refusal;
    }
}

std::int64_t Scheduler::step_of(std::size_t trial, std::size_t rung) const {
  return plan_.rungs.empty() ? plan_.trials[trial].config->iterations() : plan_.rungs[rung];
}

void Scheduler::replay_result(std::size_t trial, const TrialResult& result) {
  const std::lock_guard lock(mutex_);
  // Nothing was decided by a failure without halving: the trial gets another try.
  if (result.state != TrialState::kFailed || !plan_.rungs.empty()) take(trial, result);
}

void Scheduler::replay_promotion(std::size_t trial, std::size_t rung) {
  const std::lock_guard lock(mutex_);
  const TrialStatus& status = trials_[trial];
  MUO_CHECK(status.rung == rung || (status.state == TrialState::kPaused && status.rung + 1 == rung),
            "trial ", trial, " is promoted to rung ", rung, " and is at ", status.rung);
  if (status.rung != rung) promote(trial);
}

std::optional<std::size_t> Scheduler::next_group() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    decide();
    std::optional<std::size_t> best;
    double most = 0;
    for (std::size_t group = 0; group < serving_.size(); ++group) {
      const auto waiting = static_cast<double>(waiting_in(group));
      const double per_device = serving_[group] == 0
                                    ? std::numeric_limits<double>::max() * (waiting > 0 ? 1 : 0)
                                    : waiting / (serving_[group] + 1);
      if (per_device > most) best = group, most = per_device;
    }
    if (best) {
      ++serving_[*best];
      return best;
    }
    if (!any(TrialState::kRunning)) return std::nullopt;
    changed_.wait(lock);
  }
}

std::optional<Scheduler::Stretch> Scheduler::next_trial(std::size_t group,
                                                        const std::function<void()>& waiting) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    decide();
    if (const auto trial = first_waiting(group)) {
      TrialStatus& status = trials_[*trial];
      status.state = TrialState::kRunning;
      changed_.notify_all();
      return Stretch{.trial = *trial, .rung = status.rung, .until = step_of(*trial, status.rung)};
    }
    if (any(TrialState::kWaiting) || !any(TrialState::kRunning)) return std::nullopt;
    changed_.wait_for(lock, std::chrono::milliseconds(50));
    lock.unlock();
    waiting();
    lock.lock();
  }
}

void Scheduler::leave_group(std::size_t group) {
  const std::lock_guard lock(mutex_);
  --serving_[group];
  changed_.notify_all();
}

void Scheduler::finish(const Stretch& stretch, const TrialResult& result) {
  const std::lock_guard lock(mutex_);
  take(stretch.trial, result);
  changed_.notify_all();
}

void Scheduler::give_back(const Stretch& stretch) {
  const std::lock_guard lock(mutex_);
  trials_[stretch.trial].state = TrialState::kWaiting;
  changed_.notify_all();
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

// Of a trial that waits or runs: to its next rung. Of what halving has not decided yet: as many as
// will go on, each from rung to rung.
std::int64_t Scheduler::steps_left() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> at(rungs() + 1, 0);  // trials that are to come to each rung
  std::int64_t left = 0;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    const TrialStatus& status = trials_[i];
    if (status.state != TrialState::kWaiting && status.state != TrialState::kRunning) continue;
    left += step_of(i, status.rung) - status.last.step;
    ++at[status.rung];
  }
  for (std::size_t rung = 0; rung + 1 < rungs(); ++rung) {
    const auto come = at[rung] + static_cast<std::int64_t>(entered_[rung].size());
    const std::int64_t go_on = come == 0 ? 0 : std::max<std::int64_t>(1, come / options_.factor);
    const auto gone = static_cast<std::int64_t>(promotions_[rung]);
    const std::int64_t more = std::max<std::int64_t>(0, go_on - gone);
    left += more * (plan_.rungs[rung + 1] - plan_.rungs[rung]);
    at[rung + 1] += more;
  }
  return left;
}

void Scheduler::take(std::size_t trial, const TrialResult& result) {
  TrialStatus& status = trials_[trial];
  const double before = status.last.seconds;
  status.last = result;
  status.last.seconds += before;
  status.state = result.state;
  status.message = result.message;
  entered_[status.rung].push_back(trial);
  if (!options_.asynchronous) decide_rung();
}

void Scheduler::promote(std::size_t trial) {
  TrialStatus& status = trials_[trial];
  ++promotions_[status.rung];
  ++status.rung;
  status.state = TrialState::kWaiting;
}

// The trials with a result at this rung, best first.
std::vector<std::size_t> Scheduler::ranked(std::size_t rung) const {
  std::vector<std::size_t> out = entered_[rung];
  // A trial that has gone on keeps the score it had: it was among the best then, and is first.
  const auto key = [&](std::size_t trial) {
    const TrialStatus& status = trials_[trial];
    const bool gone = status.rung > rung;
    const bool paused = status.state == TrialState::kPaused;
    const double score = gone ? -std::numeric_limits<double>::infinity()
                         : paused
                             ? status.last.score().value_or(std::numeric_limits<double>::infinity())
                             : std::numeric_limits<double>::infinity();
    return std::pair(score, trial);
  };
  std::ranges::sort(out, {}, key);
  return out;
}

// Asynchronously: what can be promoted now.
void Scheduler::decide() {
  if (!options_.asynchronous) return;
  while (promote_one(/*at_least_one=*/false)) {
  }
  if (any(TrialState::kWaiting) || any(TrialState::kRunning)) return;
  if (promote_one(/*at_least_one=*/true)) return;
  for (TrialStatus& status : trials_)
    if (status.state == TrialState::kPaused) status.state = TrialState::kStopped;
}

// From the highest rung down; false: none is ready.
bool Scheduler::promote_one(bool at_least_one) {
  for (std::size_t rung = rungs() - 1; rung-- > 0;) {
    const auto share = entered_[rung].size() / static_cast<std::size_t>(options_.factor);
    const std::size_t most =
        at_least_one && !entered_[rung].empty() ? std::max<std::size_t>(1, share) : share;
    if (promotions_[rung] >= most) continue;
    for (const std::size_t trial : ranked(rung)) {
      if (trials_[trial].rung != rung || trials_[trial].state != TrialState::kPaused) continue;
      if (promoted_) promoted_(trial, rung + 1);
      promote(trial);
      return true;
    }
  }
  return false;
}

// Synchronously: when nobody trains towards a rung any more, those in it are decided on.
void Scheduler::decide_rung() {
  if (any(TrialState::kWaiting) || any(TrialState::kRunning) || !any(TrialState::kPaused)) return;
  std::size_t rung = 0;
  for (const TrialStatus& status : trials_)
    if (status.state == TrialState::kPaused) rung = std::max(rung, status.rung);
  const std::vector<std::size_t> order = ranked(rung);
  const std::size_t most =
      std::max<std::size_t>(1, order.size() / static_cast<std::size_t>(options_.factor));
  for (std::size_t i = 0; i < order.size(); ++i) {
    TrialStatus& status = trials_[order[i]];
    if (status.state != TrialState::kPaused) continue;
    if (i >= most) {
      status.state = TrialState::kStopped;
      continue;
    }
    if (promoted_) promoted_(order[i], rung + 1);
    promote(order[i]);
  }
}

bool Scheduler::any(TrialState state) const {
  return std::ranges::any_of(trials_, [state](const TrialStatus& s) { return s.state == state; });
}

std::optional<std::size_t> Scheduler::first_waiting(std::size_t group) const {
  // Of those that have come farthest: what has been promoted is finished first.
  std::optional<std::size_t> best;
  for (const std::size_t trial : plan_.groups[group].trials)
    if (trials_[trial].state == TrialState::kWaiting &&
        (!best || trials_[trial].rung > trials_[*best].rung))
      best = trial;
  return best;
}

std::size_t Scheduler::waiting_in(std::size_t group) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      plan_.groups[group].trials,
      [&](std::size_t trial) { return trials_[trial].state == TrialState::kWaiting; }));
}

}  // namespace muo
