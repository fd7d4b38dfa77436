#include "app/report/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace muo {
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

// A column that holds several steps shows all they span.
TEST(TextReport, KeepsSpikesInBraille) {
  RunHistory run = run_of(1000);
  run.series[static_cast<std::size_t>(Series::kLoss)][500] = 50;
  const std::string text = text_report(run, "one", {.columns = 40, .braille = true});
  EXPECT_THAT(text, testing::HasSubstr("       50 | "));
  // Halfway, from the top to the bottom of the chart.
  EXPECT_THAT(text, testing::HasSubstr("\xE2\xA1\x87"));
}

TEST(TextReport, OfARunThatHasNoStepsOrOne) {
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
}  // namespace muo
