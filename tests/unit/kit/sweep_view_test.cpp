#include "kit/sweep/sweep_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/file_descriptor.h"
#include "support/files.h"
#include "unit/kit/sweep_plan.h"

namespace muo::kit {
namespace {

using namespace std::chrono_literals;

TrialStatus at(std::int64_t step, double loss) {
  return {.state = TrialState::kPaused, .last = {.step = step, .val_loss = loss}, .step = step};
}

// Losses fall with the steps, so trials with more steps rank above trials that were stopped
// earlier. Each point has two seeds: the first point was stopped, and in each of the last two
// points one seed lags.
TEST(BestPoints, AreSortedByStepThenByMean) {
  const SweepPlan plan = plan_of(10, 2, {30, 90, kSteps});
  const std::vector<TrialStatus> status = {at(30, 1), at(30, 1), at(90, 6), at(90, 4), at(90, 3),
                                           at(90, 5), at(90, 1), at(30, 1), at(90, 1), {}};
  const std::vector<PointScore> best = best_points(plan, status);
  ASSERT_EQ(best.size(), 3U);
  EXPECT_EQ(best[0].point, 2U);
  EXPECT_EQ(best[0].step, 90);
  EXPECT_DOUBLE_EQ(best[0].mean, 4);
  EXPECT_DOUBLE_EQ(best[0].spread, std::sqrt(2.0));
  EXPECT_EQ(best[0].best_trial, 4U);
  EXPECT_EQ(best[1].point, 1U);
  EXPECT_EQ(best[1].best_trial, 3U);
  EXPECT_EQ(best[2].point, 0U);
  EXPECT_EQ(best[2].step, 30);
}

// Three points with two seeds each: the second differs from the best only by noise, the third
// significantly.
TEST(Certainty, NamesThePointsThatAreNotToldApart) {
  SweepPlan plan = plan_of(6, 2, {});
  const auto seed = [&](std::size_t trial, const char* value) {
    plan.trials[trial].point = {{"seed", value}};
  };
  for (std::size_t i = 0; i < 6; ++i)
    seed(i, i % 2 == 0 ? "1" : "2");
  const auto status = [](double third) {
    return std::vector<TrialStatus>{at(9, 2),   at(9, 3),         at(9, 2.1),
                                    at(9, 3.4), at(9, 2 + third), at(9, 3 + third)};
  };
  EXPECT_EQ(certainty_text(plan, status(0.5)),
            "certainty: at 95 %, in pairs of equal seeds, the best is not told apart from the "
            "point of trial 2");
  plan.points.erase(plan.points.begin() + 1);
  EXPECT_EQ(certainty_text(plan, status(0.5)),
            "certainty: at 95 %, in pairs of equal seeds, the best is better than all others");
  plan.points = {{0}, {2}};
  EXPECT_EQ(certainty_text(plan, status(0.5)),
            "certainty: unknown, as each point has one seed: --seed 1..4 tells gains from chance");
  plan.points = {{0, 1}};
  EXPECT_EQ(certainty_text(plan, status(0.5)), "");
}

// Steps that an earlier process trained do not count towards this process's rate.
TEST(SweepView, AssumesTheRateSoFar) {
  const SweepPlan plan = plan_of(3, 1, {});
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "out";
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  const SweepView::Clock::time_point start{};
  SweepView view(plan, file.number(), start);
  std::vector<TrialStatus> status(3);
  status[0].step = 200;
  status[0].state = TrialState::kRunning;
  view.show(status, {{.trial = 0, .first = 200, .done = 200, .until = kSteps}}, 610, start);
  status[0] = at(kSteps, 2.5);
  status[0].state = TrialState::kDone;
  status[1].state = TrialState::kRunning;
  // 70 and 30 steps took 20 s, and 510 are left.
  view.show(status, {{.trial = 1, .first = 0, .done = 30, .until = kSteps}}, 540, start + 20s);
  EXPECT_EQ(test::read_file(path),
            "0 of 3 trials ended, 1 running, ETA ?\n"
            "trial 0: held-out loss 2.5000 at step 270  ()  best so far\n"
            "1 of 3 trials ended, 1 running, ETA 1m42s, best 2.5000 at step 270\n");
}

}  // namespace
}  // namespace muo::kit
