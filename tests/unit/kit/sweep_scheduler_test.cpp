#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "kit/sweep/scheduler.h"
#include "unit/kit/sweep_plan.h"

namespace muo::kit {
namespace {

using testing::ElementsAre;

// Returns a random result of a segment; some trials diverge.
TrialResult result_of(const Scheduler::Segment& segment, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + segment.trial * 1009 + segment.rung);
  TrialResult result{.state = segment.until < kSteps ? TrialState::kPaused : TrialState::kDone,
                     .step = segment.until};
  if (random() % 8 == 0) {
    result.state = TrialState::kDiverged;
  } else {
    result.val_loss = static_cast<double>(random() % 1000);
  }
  return result;
}

struct Event {
  bool promotion = false;
  std::size_t trial = 0, rung = 0;
  TrialResult result = {};
};

// Runs the sweep on `devices`, which end their segments in a random order, until there are `most`
// results.
std::vector<Event> run_sweep(Scheduler& scheduler, std::vector<Event>& events, int devices,
                             std::uint64_t seed, std::size_t most = 1000000) {
  std::mt19937_64 random(seed);
  std::vector<Scheduler::Segment> running;
  for (std::size_t results = 0; results < most;) {
    while (std::ssize(running) < devices) {
      bool stop = false;
      // Everything runs on one thread, so waiting would deadlock.
      const auto next = scheduler.next_trial(0, [&] { stop = true, scheduler.stop(); });
      if (stop) ADD_FAILURE() << "next_trial() would wait";
      if (!next) break;
      running.push_back(*next);
      if (random() % 2 == 0) break;
    }
    if (running.empty()) break;
    const std::size_t pick = random() % running.size();
    const Scheduler::Segment segment = running[pick];
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
    const TrialResult result = result_of(segment, seed);
    events.push_back({false, segment.trial, segment.rung, result});
    scheduler.finish(segment, result);
    ++results;
  }
  for (const Scheduler::Segment& segment : running)
    scheduler.requeue(segment);
  return events;
}

Scheduler::Promoted keep(std::vector<Event>& events) {
  return [&events](std::size_t trial, std::size_t rung) {
    events.push_back({true, trial, rung});
    return true;
  };
}

std::vector<std::string> states(const Scheduler& scheduler) {
  std::vector<std::string> out;
  for (const TrialStatus& status : scheduler.status())
    out.push_back(std::string(name_of(status.state)) + std::to_string(status.rung));
  return out;
}

// Uses one device, on which nothing has to wait.
void expect_halving(std::size_t trials, std::int64_t steps) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const SweepPlan plan = plan_of(trials, 1, {10, 30, 90, kSteps});
    std::vector<Event> events;
    Scheduler scheduler(plan, {.factor = 3}, keep(events));
    EXPECT_EQ(scheduler.length_left(), steps);
    run_sweep(scheduler, events, 1, seed);
    // Reference: the trials that reached each rung, sorted by score.
    std::vector<std::size_t> here(trials);
    for (std::size_t i = 0; i < trials; ++i)
      here[i] = i;
    std::set<std::size_t> done;
    for (std::size_t rung = 0; rung < 4; ++rung) {
      std::vector<std::pair<double, std::size_t>> scores;
      for (const std::size_t trial : here) {
        const TrialResult r = result_of({trial, rung, plan.rungs[rung]}, seed);
        scores.emplace_back(r.val_loss.value_or(INFINITY), trial);
      }
      std::ranges::sort(scores);
      const std::size_t keep_count = std::max<std::size_t>(1, here.size() / 3);
      here.clear();
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const auto [score, trial] = scores[i];
        if (rung == 3 && std::isfinite(score)) done.insert(trial);
        if (i < keep_count && std::isfinite(score)) here.push_back(trial);
      }
    }
    const std::vector<TrialStatus> status = scheduler.status();
    for (std::size_t i = 0; i < trials; ++i) {
      EXPECT_EQ(status[i].state == TrialState::kDone, done.contains(i)) << i;
      EXPECT_NE(status[i].state, TrialState::kPaused) << i;
      EXPECT_NE(status[i].state, TrialState::kWaiting) << i;
    }
    EXPECT_EQ(scheduler.length_left(), 0);
  }
}

// A third of the trials continues at each rung, rounded down, but at least one: 10, 3, 1, 1.
TEST(SweepScheduler, HalvesAsDefined) {
  expect_halving(27, 27 * 10 + 9 * 20 + 3 * 60 + 1 * 180);
  expect_halving(10, 10 * 10 + 3 * 20 + 1 * 60 + 1 * 180);
}

TEST(SweepScheduler, ComparesPointsByTheMeanOfTheirSeeds) {
  const SweepPlan plan = plan_of(6, 2, {10, kSteps});
  Scheduler scheduler(plan, {.factor = 3});
  // Point 1 has the best trial, point 2 the best mean.
  EXPECT_EQ(scheduler.length_left(), 6 * 10 + 2 * (kSteps - 10));
  const std::vector<double> scores = {5, 5, 0, 9, 4, 4};
  for (const double score : scores) {
    const auto next = scheduler.next_trial(0);
    scheduler.finish(*next, {.state = TrialState::kPaused, .step = 10, .val_loss = score});
  }
  EXPECT_THAT(states(scheduler),
              ElementsAre("stopped0", "stopped0", "stopped0", "stopped0", "waiting1", "waiting1"));
  EXPECT_EQ(scheduler.length_left(), 2 * (kSteps - 10));
}

// A trial's seconds include all its training: to earlier rungs, before a signal, and by earlier
// processes.
TEST(SweepScheduler, AddsUpTheSecondsOfATrial) {
  const SweepPlan plan = plan_of(2, 1, {10, kSteps});
  Scheduler scheduler(plan, {.factor = 2});
  scheduler.replay_result(
      1, {.state = TrialState::kPaused, .step = 10, .val_loss = 2.0, .seconds = 8});
  const auto first = scheduler.next_trial(0);
  scheduler.finish(*first,
                   {.state = TrialState::kPaused, .step = 10, .val_loss = 1.0, .seconds = 4});
  const auto second = scheduler.next_trial(0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->trial, 0U);
  scheduler.add_part(0, 100, 2);
  scheduler.requeue(*second);
  EXPECT_EQ(scheduler.length_left(), kSteps - 100);
  EXPECT_EQ(scheduler.status()[0].last.seconds, 4 + 2);
  scheduler.finish(*scheduler.next_trial(0),
                   {.state = TrialState::kDone, .step = kSteps, .val_loss = 1.0, .seconds = 1});
  EXPECT_EQ(scheduler.status()[0].last.seconds, 4 + 2 + 1);
  EXPECT_EQ(scheduler.status()[1].last.seconds, 8);
}

TEST(SweepScheduler, AsynchronouslyPromotesAtMostTheShareAndOneToTheEnd) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const SweepPlan plan = plan_of(20, 1, {10, 30, 90, kSteps});
    std::vector<Event> events;
    Scheduler scheduler(plan, {.factor = 3, .asynchronous = true}, keep(events));
    run_sweep(scheduler, events, 1, seed);
    std::vector<std::size_t> entered(4, 0), gone(4, 0);
    std::vector<double> scores(20, INFINITY);
    for (const Event& event : events) {
      if (!event.promotion) {
        ++entered[event.rung];
        scores[event.trial] = event.result.val_loss.value_or(INFINITY);
        continue;
      }
      const std::size_t from = event.rung - 1;
      ++gone[from];
      EXPECT_TRUE(gone[from] <= entered[from] / 3 || gone[from] == 1);
      EXPECT_TRUE(std::isfinite(scores[event.trial]));
    }
    EXPECT_EQ(entered[0], 20U);
    const std::vector<TrialStatus> status = scheduler.status();
    for (const TrialStatus& each : status)
      EXPECT_TRUE(each.state == TrialState::kDone || each.state == TrialState::kStopped ||
                  each.state == TrialState::kDiverged)
          << name_of(each.state);
    EXPECT_GE(gone[0], 1U);
    EXPECT_EQ(entered[3], gone[2]);
  }
}

// A journal may be truncated after any event: another process then reaches the same end.
TEST(SweepScheduler, AJournalCutAnywhereLeadsToTheSameEnd) {
  for (const bool asynchronous : {false, true})
    for (std::size_t cut = 0; cut < 40; ++cut) {
      const SweepPlan plan = plan_of(18, 2, {10, 30, kSteps});
      const Scheduler::Options options{.factor = 3, .asynchronous = asynchronous};
      std::vector<Event> whole;
      Scheduler first(plan, options, keep(whole));
      run_sweep(first, whole, 1, 1);
      std::vector<Event> events(
          whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(std::min(cut, whole.size())));
      const std::vector<Event> journal = events;
      Scheduler second(plan, options, keep(events));
      for (const Event& event : journal)
        if (event.promotion)
          second.replay_promotion(event.trial, event.rung);
        else
          second.replay_result(event.trial, event.result);
      EXPECT_EQ(events.size(), journal.size()) << "a replay makes no new decisions";
      run_sweep(second, events, 1, 1);
      EXPECT_EQ(states(second), states(first)) << "cut at " << cut;
    }
}

TrialResult result_done() { return {.state = TrialState::kDone, .step = kSteps, .val_loss = 1.0}; }

// Two workers, three groups of four trials.
TEST(SweepScheduler, WorkersPreferTheirGroupsThenFreeOnesThenHelp) {
  const SweepPlan plan = plan_of(12, 1, {}, 3);
  Scheduler scheduler(plan, {});
  std::vector<std::size_t> groups[2];
  for (int i = 0; i < 6; ++i)
    for (const int worker : {0, 1}) {
      const auto next = scheduler.next_trial(worker);
      ASSERT_TRUE(next);
      EXPECT_EQ(next->until, kSteps);
      groups[worker].push_back(plan.trials[next->trial].group);
      scheduler.finish(*next, result_done());
    }
  EXPECT_THAT(groups[0], ElementsAre(0, 0, 0, 0, 2, 2));
  EXPECT_THAT(groups[1], ElementsAre(1, 1, 1, 1, 2, 2));
  EXPECT_FALSE(scheduler.next_trial(0));
  EXPECT_FALSE(scheduler.next_trial(1));
}

// With halving, a worker returns to the groups that it has captured, unless it has dropped them.
TEST(SweepScheduler, APromotedTrialGoesToAWorkerThatHasItsGroup) {
  const SweepPlan plan = plan_of(6, 1, {10, kSteps}, 2);  // even trials are in group 0
  for (const bool drops : {false, true}) {
    Scheduler scheduler(plan, {.factor = 3});
    for (int i = 0; i < 3; ++i)
      for (const int worker : {0, 1}) {
        const auto next = scheduler.next_trial(worker);
        ASSERT_TRUE(next);
        EXPECT_EQ(plan.trials[next->trial].group, static_cast<std::size_t>(worker));
        scheduler.finish(
            *next,
            {.state = TrialState::kPaused, .step = 10, .val_loss = next->trial < 2 ? 1.0 : 2.0});
      }
    if (drops) scheduler.drop_group(1, 1);
    const auto promoted = scheduler.next_trial(1);
    ASSERT_TRUE(promoted);
    // Groups captured by no worker come before groups of other workers.
    EXPECT_EQ(promoted->trial, 1U);
    EXPECT_EQ(promoted->rung, 1U);
    EXPECT_EQ(scheduler.next_trial(1)->trial, 0U) << "takes a trial of the other worker's group";
  }
}

// Two trials and three workers: the third one waits until no trial is left.
TEST(SweepScheduler, NoWorkerCapturesForATrialThatAnotherHas) {
  const SweepPlan plan = plan_of(2, 1, {});
  Scheduler scheduler(plan, {});
  const auto first = scheduler.next_trial(0), second = scheduler.next_trial(1);
  ASSERT_TRUE(first && second);
  std::optional<Scheduler::Segment> third = *first;
  std::thread worker([&] { third = scheduler.next_trial(2); });
  scheduler.finish(*first, result_done());
  scheduler.finish(*second, result_done());
  worker.join();
  EXPECT_FALSE(third);
}

TEST(SweepScheduler, AStoppedTrialWaitsAgainAndAFailedOneIsTriedAgainWithoutHalving) {
  const SweepPlan plan = plan_of(2, 1, {});
  Scheduler scheduler(plan, {});
  scheduler.replay_result(0, {.state = TrialState::kFailed});
  const auto next = scheduler.next_trial(0);
  EXPECT_EQ(next->trial, 0U);
  scheduler.requeue(*next);
  EXPECT_THAT(states(scheduler), ElementsAre("waiting0", "waiting0"));
  scheduler.stop();
  EXPECT_FALSE(scheduler.next_trial(0));
}

// --ask-tell: an idle device waits for the next trial until the end of input.
TEST(SweepScheduler, AnOpenSweepTakesTrialsUntilItIsClosed) {
  SweepPlan plan = plan_of(1, 1, {});
  plan.trials.reserve(3);
  Scheduler scheduler(plan, {.open = true});
  const auto first = scheduler.next_trial(0);
  ASSERT_TRUE(first);
  scheduler.finish(*first, result_of(*first, 1));

  std::size_t waited = 0;
  const auto give_one = [&] {
    if (++waited != 3) return;
    plan.trials.push_back(plan.trials.front());
    scheduler.add_trials();
  };
  const auto second = scheduler.next_trial(0, give_one);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->trial, 1U);
  EXPECT_EQ(waited, 3U);
  scheduler.finish(*second, result_of(*second, 1));

  plan.trials.push_back(plan.trials.front());
  scheduler.add_trials();
  EXPECT_TRUE(scheduler.cancel(2));
  EXPECT_FALSE(scheduler.cancel(2));
  EXPECT_FALSE(scheduler.cancel(0));
  EXPECT_FALSE(scheduler.take_waiting(0));
  EXPECT_FALSE(scheduler.next_trial(0, [&] { scheduler.close(); }));
  EXPECT_EQ(scheduler.status()[2].state, TrialState::kStopped);
}

}  // namespace
}  // namespace muo::kit
