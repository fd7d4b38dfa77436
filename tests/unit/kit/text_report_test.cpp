#include "kit/report/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace muo::kit {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RunHistory run_of(int steps) {
  RunHistory run;
  for (int i = 0; i < steps; ++i) {
    run.step.push_back(i);
    run.tokens.push_back(100L * (i + 1));
    for (std::vector<double>& values : run.series)
      values.push_back(kNan);
    run.series[static_cast<std::size_t>(Series::kLoss)].back() = 5.0 - 4.0 * i / (steps - 1);
    run.series[static_cast<std::size_t>(Series::kStepMs)].back() = 500;
  }
  return run;
}

TEST(TextReport, IsFactsAndCurves) {
  RunHistory run = run_of(21);
  run.series[static_cast<std::size_t>(Series::kLoss)][10] = kNan;
  run.eval_step = {0, 20};
  run.val_loss = {5, 2};
  run.val_bpb = {kNan, kNan};
  run.skipped = {{3, "outlier", ""}};
  run.alarms = {{4, "data", "step 4: warning: steps wait"}};
  EXPECT_EQ(text_report(run, "one", {.columns = 33}),
            "one: 21 steps, 2.10k tokens, 11s, loss 1.0000, held out 2.0000 loss, best 2.0000, "
            "updates skipped: 1, alarms: 1\n"
            "loss, nats per token\n"
            "        5 | **\n"
            "          |   ****\n"
            "          |       ****\n"
            "          |            ***\n"
            "          |               ****\n"
            "        1 |                   ***\n"
            "            step 0 to 20\n"
            "held-out loss\n"
            "        5 | *\n"
            "          |\n"
            "          |\n"
            "          |\n"
            "          |\n"
            "        2 |                     *\n"
            "            step 0 to 20\n"
            "step 4: warning: steps wait\n");
}

RunSummary trial_of(const std::string& name, const std::string& lr, const std::string& seed,
                    double held_out) {
  return {.name = name,
          .options = {{"out", name}, {"depth", "1"}, {"matrix-lr", lr}, {"seed", seed}},
          .held_out = "a",
          .unit = "bits/byte",
          .steps = 10,
          .seconds = 2,
          .loss = 3,
          .last = held_out,
          .best = held_out - 1};
}

TEST(TextReport, OfTrialsIsATableSortedBestFirst) {
  RunSummary diverged = trial_of("4", "0.3", "1", 0);
  diverged.last = diverged.best = {};
  // A trial with fewer steps ranks below all others, even if its loss is lower.
  RunSummary stopped = trial_of("5", "0.1", "3", 2);
  stopped.steps = 5;
  EXPECT_EQ(
      trial_table(std::vector{stopped, trial_of("0", "0.1", "1", 5), diverged,
                              trial_of("1", "0.1", "2", 3), trial_of("2", "0.20000000298", "1", 2),
                              trial_of("3", "0.20000000298", "2", 4)}),
      "  trial  matrix-lr  seed  steps    loss  held-out bits/byte  mean of seeds    best  time\n"
      "  2            0.2     1     10  3.0000              2.0000         3.0000  1.0000    2s\n"
      "  3            0.2     2     10  3.0000              4.0000         3.0000  3.0000    2s\n"
      "  1            0.1     2     10  3.0000              3.0000         4.0000  2.0000    2s\n"
      "  0            0.1     1     10  3.0000              5.0000         4.0000  4.0000    2s\n"
      "  4            0.3     1     10  3.0000                   -              -       -    2s\n"
      "  5            0.1     3      5  3.0000              2.0000         2.0000  1.0000    2s\n");
}

TEST(TextReport, WarnsOfDifferentHeldOutData) {
  std::vector<RunSummary> runs = {trial_of("x", "1", "1", 2), trial_of("y", "1", "1", 2),
                                  trial_of("z", "1", "1", 2)};
  EXPECT_EQ(incomparable_text(runs), "");
  runs[1].held_out = "b";
  EXPECT_EQ(incomparable_text(runs),
            "Their held-out data differ, so their held-out values cannot be compared:\n"
            "  a: x, z\n"
            "  b: y\n");
  runs[1].held_out = "";
  EXPECT_EQ(incomparable_text(runs), "") << "runs of older versions do not record it";
}

// A column of several steps shows their whole range.
TEST(TextReport, KeepsSpikesInBraille) {
  RunHistory run = run_of(1000);
  run.series[static_cast<std::size_t>(Series::kLoss)][500] = 50;
  const std::string text = text_report(run, "one", {.columns = 40, .braille = true});
  EXPECT_THAT(text, testing::HasSubstr("       50 | "));
  // The spike, in the middle of the chart, reaches from its top to its bottom.
  EXPECT_THAT(text, testing::HasSubstr("\xE2\xA1\x87"));
}

TEST(TextReport, OfARunWithNoStepsOrOneStep) {
  EXPECT_EQ(text_report(RunHistory{}, "empty", {}), "empty: no steps\n");
  RunHistory run = run_of(2);
  run.step.pop_back();
  run.tokens.pop_back();
  for (std::vector<double>& values : run.series)
    values.pop_back();
  EXPECT_THAT(text_report(run, "one", {.columns = 1}),
              testing::AllOf(testing::HasSubstr("one: 1 steps, 100 tokens"),
                             testing::HasSubstr("step 0 to 0")));
}

}  // namespace
}  // namespace muo::kit
