#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/program.h"
#include "system/training_run.h"

namespace muo {
namespace {

using test::Outcome;
using testing::HasSubstr;

// In such a small run, the gradient norm often exceeds its mean by half a standard deviation.
constexpr const char* kSkipping =
    "--num-iterations 160 --matrix-lr 0.02 --eval-every -1 --outlier-deviations 0.5 "
    "--on-outlier skip ";

class NumericsGuard : public Training {
 protected:
  [[nodiscard]] std::vector<std::int64_t> skipped(const std::string& out) const {
    std::vector<std::int64_t> steps;
    for (const nlohmann::json& line : metrics(out, "train"))
      if (line.contains("skipped")) steps.push_back(line["step"]);
    return steps;
  }
};

TEST_F(NumericsGuard, TooManySkippedUpdatesEndTheRunAndLoseNothing) {
  const Outcome outcome = test::run_program(
      options("run", kSkipping + std::string("--max-skipped 2 --model nanochat")));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, testing::StartsWith("muograph: error: "));
  EXPECT_THAT(outcome.err, HasSubstr("more than --max-skipped 2"));
  const std::vector<std::int64_t> steps = skipped("run");
  ASSERT_GE(steps.size(), 3U);
  EXPECT_GE(steps.front(), 128) << "nothing is unusual before the window is full";
  EXPECT_THAT(outcome.out, HasSubstr("step " + std::to_string(steps.front()) + ": outlier: "));
  const trainer::Checkpoint last(path("run"));
  EXPECT_EQ(last.info().updates, last.info().step - static_cast<std::int64_t>(steps.size()));
  EXPECT_LT(last.info().step, 160);
  // The name of an export contains the number of steps, not of updates.
  EXPECT_EQ(test::run_program("checkpoint export " + path("run").string() + " --out " +
                              path("exported").string())
                .code,
            0);
  EXPECT_TRUE(exists(path(fmt::format("exported/model_{:06}.safetensors", last.info().step))));
  const Outcome refused =
      test::run_program(options("run", kSkipping + std::string("--max-skipped -2")));
  EXPECT_EQ(refused.code, 2);
}

// Outliers are judged by statistics of earlier steps, so a resumed run must restore these.
TEST_F(NumericsGuard, AResumedRunSkipsTheSameUpdates) {
  const std::string more = kSkipping + std::string("--max-skipped -1 ");
  train("whole", more + "--save-every 140");
  const std::vector<std::int64_t> steps = skipped("whole");
  ASSERT_FALSE(steps.empty());
  ASSERT_GE(steps.back(), 140);
  std::vector<std::int64_t> reported = steps;  // skipped updates have no recorded size
  for (const nlohmann::json& line : metrics("whole", "update"))
    reported.push_back(line["step"]);
  std::ranges::sort(reported);
  std::vector<std::int64_t> all(160);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(reported, all);
  train("part", more + "--resume " + trainer::checkpoint_directory(path("whole"), 140).string());
  EXPECT_EQ(tensors("whole", 160), tensors("part", 160));
  train("other", more + "--devices 3 --strategy ddp --resume " +
                     trainer::checkpoint_directory(path("whole"), 140).string());
  EXPECT_FALSE(skipped("other").empty());
}

TEST_F(NumericsGuard, ClippingScalesOnlyLargeGradients) {
  train("free");
  train("high", "--max-grad-norm 1e9");
  EXPECT_EQ(tensors("free", 20), tensors("high", 20));
  train("low", "--max-grad-norm 0.05");
  EXPECT_NE(tensors("free", 20), tensors("low", 20));
  for (const nlohmann::json& line : metrics("low", "train")) {
    const double norm = line["grad_norm"];
    EXPECT_NEAR(line.value("gradient_scale", 1.0), norm > 0.05 ? 0.05 / norm : 1.0, 1e-6);
  }
  EXPECT_LT(losses("low").back(), losses("low").front()) << "it learns all the same";
}

}  // namespace
}  // namespace muo
