#include "trainer/run/pacing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/errors.h"
#include "support/files.h"
#include "trainer/run/decisions.h"
#include "trainer/run/run_config.h"
#include "trainer/train/log_lines.h"

namespace muo::trainer {
namespace {

using testing::HasSubstr;

constexpr double kBudget = 10;

RunConfig config_of(double budget = kBudget, const TrainedSoFar& trained = {}) {
  RunConfig config;
  config.options.batch.time_budget = Duration{budget};
  config.hyper.iterations = kUnbounded;
  config.trained = trained;
  config.hyper.pace = trained.steps == 0 ? Pace{.from = 0} : trained.clock.pace;
  return config;
}

struct Simulated {
  std::vector<double> positions;  // of each step
  std::vector<Pace> paces;
  double seconds = 0;
  BudgetClock clock = {};
};

// Runs steps that take `duration(step)` seconds each, of which `unfinished` are not finished when
// the next one is decided on, as on a GPU.
Simulated simulate(const RunConfig& config, const std::function<double(std::int64_t)>& duration,
                   std::int64_t unfinished = 0, std::int64_t until = 1 << 20) {
  Pacing pacing(config);
  Pace pace = config.hyper.pace;
  Simulated out;
  out.paces.push_back(pace);
  std::int64_t counted = config.trained.steps;
  for (std::int64_t step = counted; step < until; ++step) {
    for (; counted < step - unfinished; ++counted)
      pacing.add(1, duration(counted));
    const Pacing::Decision decision = pacing.decide(step);
    if (decision.pace) out.paces.push_back(pace = *decision.pace);
    if (decision.is_over) break;
    out.positions.push_back(pace.at(step));
    out.seconds += duration(step);
  }
  for (; counted < config.trained.steps + std::ssize(out.positions); ++counted)
    pacing.add(1, duration(counted));
  out.clock = pacing.clock();
  return out;
}

TEST(Pacing, KnowsTheBatchesToCome) {
  RunConfig config = config_of();
  config.batches = {{.from = 0, .tokens = 100}, {.from = 50, .tokens = 400}};
  const Simulated run = simulate(config, [](std::int64_t step) { return step < 50 ? 0.05 : 0.2; });
  EXPECT_NEAR(run.seconds, kBudget, 0.1);  // half a step
  // 50 steps in 2.5 s, 37.5 in the rest; the first three stay at 0.
  for (const Pace& pace : run.paces)
    if (pace.from > 0 && pace.from < 50) {
      EXPECT_NEAR(pace.per_step, 1 / 84.5, 0.0005) << pace.from;
    }
}

TEST(Pacing, PositionsOfEqualStepsAreThoseOfARunOfAsManySteps) {
  const Simulated run = simulate(config_of(), [](std::int64_t) { return 0.01; });
  ASSERT_EQ(run.positions.size(), 1000);
  for (std::size_t step = 3; step < run.positions.size(); ++step)  // the first three stay at 0
    EXPECT_NEAR(run.positions[step], static_cast<double>(step - 3) / 997, 1e-9) << step;
  EXPECT_EQ(run.paces.back(), (Pace{.from = 1000, .position = 1}));
}

TEST(Pacing, EndsWithinHalfAStepWhateverTheStepsTake) {
  const std::vector<std::function<double(std::int64_t)>> durations = {
      [](std::int64_t step) { return step == 0 ? 2 : 0.01; },         // a slow first step
      [](std::int64_t step) { return step % 7 == 0 ? 0.03 : 0.01; },  // uneven
      [](std::int64_t step) { return step < 300 ? 0.01 : 0.02; },     // another program starts
      [](std::int64_t step) { return step < 300 ? 0.02 : 0.01; },     // and ends
      [](std::int64_t step) {
        return 0.01 * (1 + std::sin(0.01 * static_cast<double>(step)));
      },                                   // drifts
      [](std::int64_t) { return 1.9; },    // few steps
      [](std::int64_t) { return 11.0; }};  // one
  for (std::size_t i = 0; i < durations.size(); ++i)
    for (const std::int64_t unfinished : {0, 1}) {
      SCOPED_TRACE(testing::Message() << "durations " << i << ", unfinished " << unfinished);
      const auto& duration = durations[i];
      if (duration(0) > kBudget && unfinished > 0) continue;  // nothing is known when it ends
      const Simulated run = simulate(config_of(), duration, unfinished);
      const auto steps = std::ssize(run.positions);
      const double last = duration(steps - 1);
      EXPECT_NEAR(run.seconds, kBudget, std::max(0.55 * last, kBudget / 100));
      EXPECT_TRUE(std::ranges::is_sorted(run.positions));
      EXPECT_GE(run.positions.front(), 0);
      EXPECT_LE(run.positions.back(), 1);
      if (steps > 100) {
        EXPECT_GT(run.positions.back(), 0.98);
      }
      EXPECT_EQ(run.clock.pace.position, 1);
      EXPECT_DOUBLE_EQ(run.clock.spent, run.seconds);
    }
}

TEST(Pacing, APauseDoesNotMoveTheSchedules) {
  // Every 50th step is 30 times as long: positions follow the time, not the number of steps.
  const Simulated run =
      simulate(config_of(), [](std::int64_t step) { return step % 50 == 49 ? 0.3 : 0.01; });
  double spent = 0;
  for (std::size_t step = 0; step < run.positions.size(); ++step) {
    EXPECT_NEAR(run.positions[step], spent / kBudget, 0.06) << step;
    spent += step % 50 == 49 ? 0.3 : 0.01;
  }
}

TEST(Pacing, AResumedRunTakesWhatIsLeft) {
  const auto duration = [](std::int64_t) { return 0.01; };
  const Simulated first = simulate(config_of(), duration, 0, 400);
  EXPECT_NEAR(first.clock.spent, 4, 1e-12);
  const TrainedSoFar trained{.steps = 400, .rows = 0, .tokens = 0, .clock = first.clock};
  const Simulated rest = simulate(config_of(kBudget, trained), duration);
  EXPECT_EQ(rest.positions.size(), 600);
  EXPECT_NEAR(rest.positions.front(), 0.398, 0.002);
  EXPECT_NEAR(rest.positions.back(), 1, 0.005);
  // A complete run has nothing left.
  const TrainedSoFar complete{.steps = 1000, .rows = 0, .tokens = 0, .clock = rest.clock};
  EXPECT_TRUE(config_of(kBudget, complete).is_complete_at(1000));
  EXPECT_FALSE(config_of(kBudget, trained).is_complete_at(400));
}

TEST(Pacing, ALogRepeatsThePacesBitwise) {
  const Simulated run = simulate(config_of(), [](std::int64_t step) {
    return 0.011 + 0.007 * std::sin(static_cast<double>(step));
  });
  test::TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.jsonl";
  std::string log;
  for (const Pace& pace : run.paces)
    log += pace_line(pace, 1) + "\n" + pace_line(pace, 2) + "\n{\"kind\":\"train\",\"step\":1}\n";
  test::write_file(file, log + "{\"kind\":\"tra");
  RunConfig again;
  again.paces = read_paces(file);
  again.hyper.pace = again.paces.front();
  EXPECT_EQ(again.paces, run.paces);
  const Simulated repeated = simulate(
      again, [](std::int64_t) { return 1.0; }, 1, again.paces.back().from);
  EXPECT_EQ(repeated.positions, run.positions);
}

TEST(Pacing, RefusesLogsWithoutPacesAndDamagedOnes) {
  test::TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.jsonl";
  EXPECT_THAT(test::message_of<InputError>([&] { read_paces(file); }), HasSubstr("cannot be read"));
  const auto refusal = [&](const std::string& log) {
    test::write_file(file, log);
    return test::message_of<InputError>([&] { read_paces(file); });
  };
  EXPECT_THAT(refusal("{\"kind\":\"train\",\"step\":3}\n"), HasSubstr("has no paces"));
  EXPECT_THAT(refusal("{\"kind\":\"pace\",\"step\":3}\n"), HasSubstr("no position"));
  for (const Pace& pace : {Pace{0, -0.5, 0}, Pace{0, 1.5, 0}, Pace{0, 0, -0.5}, Pace{-1, 0, 0}})
    EXPECT_THAT(refusal(pace_line(pace, 0)), HasSubstr("is damaged"));
  EXPECT_THAT(refusal(pace_line({5, 0.5, 0}, 0) + "\n" + pace_line({4, 0.6, 0}, 0)),
              HasSubstr("the pace of step 4 is damaged"));
}

// The end of an interrupted run is its last logged step.
TEST(Pacing, ALogThatEndsEarlyEndsTheRunThere) {
  test::TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.jsonl";
  test::write_file(file, pace_line({0, 0, 0.125}, 0) + "\n{\"kind\":\"train\",\"step\":4}\n");
  EXPECT_THAT(read_paces(file), testing::ElementsAre(Pace{0, 0, 0.125}, Pace{5, 0.625, 0}));
}

TEST(Decisions, ReachOtherProcessesUnchanged) {
  Decisions decisions{.ended_early = true};
  decisions.pacing = {.is_over = true, .pace = Pace{7, 1.0 / 3, 0.1}};
  const Decisions read = decisions_of(decisions_text(decisions));
  EXPECT_TRUE(read.ended_early);
  EXPECT_TRUE(read.pacing.is_over);
  EXPECT_EQ(read.pacing.pace, decisions.pacing.pace);
  EXPECT_FALSE(decisions_of(decisions_text({})).pacing.pace);
}

}  // namespace
}  // namespace muo::trainer
