#include "trainer/train/alarms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace muo::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Kinds and texts of the alarms raised by the steps that `of` makes.
std::vector<std::string> alarms_of(int steps, const std::function<Alarms::Step(int)>& of,
                                   double max_waiting = Alarms::kMaxWaiting) {
  Alarms alarms(max_waiting);
  std::vector<std::string> out;
  double now = 1e6;
  for (int i = 0; i < steps; ++i) {
    Alarms::Step step = of(i);
    step.step = i;
    now += step.ms / 1000;
    for (const Alarm& alarm : alarms.after_step(step, now))
      out.push_back(std::string(alarm.kind) + ": " + alarm.text);
  }
  return out;
}

TEST(Alarms, NoneForANoisyRun) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1000, 150);
  EXPECT_THAT(alarms_of(2000,
                        [&](int i) -> Alarms::Step {
                          const double slow = i % 97 == 5 ? 20000 : 0;  // single slow steps
                          return {.ms = std::max(500.0, noise(random)) + slow,
                                  .waited_ms = 50,
                                  .memory = (std::int64_t{1} << 30) + i};
                        }),
              IsEmpty());
}

TEST(Alarms, OneForStepsThatStaySlower) {
  const auto slower = [](double ms) {
    return alarms_of(200, [&](int i) -> Alarms::Step { return {.ms = i < 100 ? 1000 : ms}; });
  };
  EXPECT_THAT(slower(1400), IsEmpty());
  EXPECT_THAT(slower(1600), ElementsAre(HasSubstr(
                                "throughput: step 118: warning: a step takes 1600 ms, 1.6 times "
                                "the normal 1000 ms")));
  // Fast again, then slow again within ten minutes: the alarm is suppressed.
  EXPECT_THAT(
      alarms_of(400,
                [](int i) -> Alarms::Step { return {.ms = i / 100 % 2 == 0 ? 1000.0 : 2000.0}; }),
      ElementsAre(HasSubstr("throughput: ")));
  // Slow for half an hour.
  EXPECT_THAT(
      alarms_of(1000, [](int i) -> Alarms::Step { return {.ms = i < 100 ? 1000.0 : 2000.0}; }),
      SizeIs(3));
}

TEST(Alarms, NoneForAShortSlowPhase) {
  // 30 slow steps of 20 ms: too short for an alarm.
  EXPECT_THAT(
      alarms_of(2000,
                [](int i) -> Alarms::Step { return {.ms = i >= 1000 && i < 1030 ? 20.0 : 10.0}; }),
      IsEmpty());
}

TEST(Alarms, OneForStepsThatWaitForData) {
  const auto waiting = [](double waited, double most) {
    return alarms_of(
        60, [&](int) -> Alarms::Step { return {.ms = 1000, .waited_ms = waited}; }, most);
  };
  EXPECT_THAT(waiting(150, Alarms::kMaxWaiting), IsEmpty());
  EXPECT_THAT(waiting(350, Alarms::kMaxWaiting),
              ElementsAre(HasSubstr("data: step 34: warning: steps wait 35 % of their time")));
  EXPECT_THAT(waiting(800, Alarms::kMaxWaitingOnGpu), IsEmpty());
  EXPECT_THAT(waiting(990, Alarms::kMaxWaitingOnGpu), ElementsAre(HasSubstr("data: ")));
  // Waiting for data makes steps slower, but does not raise an alarm of throughput as well.
  EXPECT_THAT(alarms_of(100,
                        [](int i) -> Alarms::Step {
                          return i < 50 ? Alarms::Step{.ms = 1000}
                                        : Alarms::Step{.ms = 3000, .waited_ms = 2000};
                        }),
              ElementsAre(HasSubstr("data: ")));
}

TEST(Alarms, OneForMemoryThatGrowsAfterWarmUp) {
  const auto growing = [](std::int64_t per_step, int until) {
    return alarms_of(1000, [=](int i) -> Alarms::Step {
      return {.ms = 1000, .memory = (std::int64_t{512} << 20) + per_step * std::min(i, until)};
    });
  };
  EXPECT_THAT(growing(std::int64_t{100} << 20, 50), IsEmpty());  // during warm-up
  EXPECT_THAT(growing(std::int64_t{1} << 20, 300), IsEmpty());   // 240 MiB since warm-up
  EXPECT_THAT(growing(std::int64_t{1} << 20, 500),
              ElementsAre(HasSubstr("memory: warning: the process holds 828 MiB, 256 MiB more")));
  // Warm-up ends at 542 MiB. The second of three alarms comes too soon after the first.
  EXPECT_THAT(alarms_of(2000,
                        [](int i) -> Alarms::Step {
                          return {.ms = 1000, .memory = std::int64_t{512 + i / 2} << 20};
                        }),
              ElementsAre(HasSubstr("holds 798 MiB, 256 MiB more than after warm-up"),
                          AllOf(HasSubstr("holds 1318 MiB, 776 MiB more than after warm-up"),
                                HasSubstr("(1 more like this"))));
}

TEST(Alarms, OutliersRaiseOneAlarmInTenMinutesWithTheNumberSuppressed) {
  Alarms alarms;
  std::vector<std::string> texts;
  for (int i = 0; i < 1300; ++i)
    for (const Alarm& alarm : alarms.after_step(
             {.step = i, .ms = 1000, .outlier = i % 100 == 0 ? "step: outlier" : ""}, i))
      texts.push_back(alarm.text);
  EXPECT_THAT(
      texts, ElementsAre("step: outlier", "step: outlier (5 more like this in the last 10 minutes)",
                         "step: outlier (5 more like this in the last 10 minutes)"));
  EXPECT_EQ(alarms.suppressed(), "");
  static_cast<void>(alarms.after_step({.ms = 1000, .outlier = "again"}, 1301));
  EXPECT_EQ(alarms.suppressed(), "loss 1");
}

std::vector<std::string> alarms_of_updates(int steps, const std::function<double(int)>& ratio,
                                           bool is_scalars = false) {
  Alarms alarms;
  std::vector<std::string> out;
  for (int i = 0; i < steps; ++i) {
    UpdateSizes sizes;
    sizes.step = i;
    sizes.groups = {{.name = "wte", .is_scalars = is_scalars, .size = {.ratio = ratio(i)}}};
    for (const Alarm& alarm : alarms.after_update(sizes, i))
      out.push_back(std::string(alarm.kind) + ": " + alarm.text);
  }
  return out;
}

TEST(Alarms, OneForUpdatesThatStayTooLargeOrTooSmall) {
  EXPECT_THAT(alarms_of_updates(99, [](int) { return 0.2; }), IsEmpty());
  EXPECT_THAT(
      alarms_of_updates(150, [](int) { return 0.2; }),
      ElementsAre("update: step 99: warning: for 100 steps each update of wte has been more "
                  "than 0.1 of its weights' size (now 0.2): is its learning rate too high?"));
  EXPECT_THAT(alarms_of_updates(150, [](int) { return 2e-6; }),
              ElementsAre(HasSubstr("less than 1e-05 of its weights' size (now 2e-06): is its "
                                    "learning rate too low?")));
  EXPECT_THAT(alarms_of_updates(500, [](int i) { return i % 100 == 0 ? 0.1 : 0.2; }), IsEmpty());
  EXPECT_THAT(alarms_of_updates(750, [](int) { return 0.2; }),
              ElementsAre(HasSubstr("step 99: "),
                          AllOf(HasSubstr("step 699: warning: for 700 steps each"),
                                HasSubstr("(5 more like this in the last 10 minutes)"))));
  EXPECT_THAT(alarms_of_updates(
                  150, [](int) { return 0.2; }, /*is_scalars=*/true),
              IsEmpty());
}

}  // namespace
}  // namespace muo::trainer
