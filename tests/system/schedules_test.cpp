#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "support/files.h"
#include "support/program.h"
#include "system/training_run.h"

// Batches that grow (--total-batch-size TOKENS@STEP,...) and shapes of the warm-down.
namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using testing::HasSubstr;

class BatchRamp : public Training {
 protected:
  static constexpr const char* kRamp = "256@0,768@3,1536@0.7";  // 0.7 of 10 steps: 7
  static constexpr const char* kSame = " --device-batch-size 2 --num-iterations 10 --save-every 1";
};

// Rates, rows, counts and the state are those of three runs, each with one batch, of which the
// second and the third resume the one before.
TEST_F(BatchRamp, IsBitwiseTheRunsOfEachBatch) {
  int runs = 0;
  for (const std::string devices :
       {" --devices 1 --graph-micro-steps loop", " --devices 2 --graph-micro-steps loop",
        " --devices 2 --graph-micro-steps unrolled", " --devices 2 --shard gradients",
        " --devices 2 --shard weights"}) {
    const std::string more = kSame + devices;
    const std::string ramp = fmt::format("ramp{}", runs++);
    const Outcome outcome = train(ramp, fmt::format("--total-batch-size {}{}", kRamp, more));
    EXPECT_THAT(outcome.out, HasSubstr("step: 256 to 1536 tokens"));
    const auto part = [&](const std::string& name, const std::string& from, int tokens) {
      train(name, fmt::format("--total-batch-size {}{}{}", tokens, more,
                              from.empty() ? "" : " --resume " + path(from).string()));
    };
    const std::string first = ramp + "-a", second = ramp + "-b", third = ramp + "-c";
    part(first, "", 256);
    part(second, first + "/checkpoints/step_000003", 768);
    part(third, second + "/checkpoints/step_000007", 1536);
    for (const std::int64_t step : {3, 7, 10})
      EXPECT_EQ(tensors(ramp, step), tensors(step == 3   ? first
                                             : step == 7 ? second
                                                         : third,
                                             step))
          << devices << step;
    std::vector<double> tokens;
    for (const nlohmann::json& record : metrics(ramp, "train"))
      tokens.push_back(record["tokens"]);
    EXPECT_EQ(tokens,
              (std::vector<double>{256, 512, 768, 1536, 2304, 3072, 3840, 5376, 6912, 8448}));
    EXPECT_THAT(test::read_file(path(ramp) / "config.toml"),
                HasSubstr("\ntotal-batch-size = \"256@0,768@3,1536@0.7\"\n"));
  }
}

TEST_F(BatchRamp, ResumesAtEachBorder) {
  const std::string more = fmt::format("--total-batch-size {}{}", kRamp, kSame);
  train("whole", more);
  for (const int step : {2, 3, 4, 7, 8}) {
    const std::string out = fmt::format("from-{}", step);
    // The options come from the run's config.toml.
    const Outcome outcome =
        run_program(fmt::format("train --resume {}/checkpoints/step_00000{} --out {}",
                                path("whole").string(), step, path(out).string()));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(tensors(out, 10), tensors("whole", 10)) << step;
  }
}

TEST_F(BatchRamp, MayHaveATimeBudget) {
  train("timed",
        "--total-batch-size 256@0,1536@5 --device-batch-size 4 --num-iterations 12 "
        "--time-budget 1h");
  const std::vector<nlohmann::json> steps = metrics("timed", "train");
  EXPECT_EQ(steps.back()["tokens"], 5 * 256 + 7 * 1536);
  // The position stays at the start of the hour, so the warm-down does not begin.
  EXPECT_EQ(steps.back()["lr_multiplier"], 1.0);
}

// Their values contain commas, so a list of them is an array.
TEST_F(BatchRamp, MayVaryInASweep) {
  test::write_file(path("sweep.toml"), "total-batch-size = [\"256@0,768@2\", \"256\"]\n");
  std::string command = options(
      "sweep", "--config " + path("sweep.toml").string() + " --num-iterations 4 --eval-every -1");
  command = "sweep" + command.substr(command.find(' '));
  const std::string size = " --total-batch-size 768";
  command.erase(command.find(size), size.size());
  const Outcome outcome = run_program(command);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(test::read_file(path("sweep/sweep.csv")), HasSubstr("done,\"256@0,768@2\",4,2048,"));
  EXPECT_EQ(run_program("sweep --resume " + path("sweep").string()).code, 0);
}

class Warmdown : public Training {};

TEST_F(Warmdown, HasItsShapeOnAllDevicesAndStrategies) {
  const auto left = [](const std::string& shape, double p) {
    constexpr double kPi = 3.14159265358979323846;
    return shape == "cosine"   ? (1 - std::cos(kPi * p)) / 2
           : shape == "1-sqrt" ? 1 - std::sqrt(1 - p)
                               : p;
  };
  for (const std::string shape : {"linear", "cosine", "1-sqrt"})
    for (const std::string where :
         {"--devices 1", "--devices 2 --strategy ddp", "--devices 3 --strategy parallel"}) {
      const std::string run = fmt::format("{}{}", shape, where[10]);
      train(run, fmt::format("--warmdown-shape {} --warmdown-ratio 0.5 --num-iterations 16 "
                             "--warmup-steps 2 {}",
                             shape, where));
      for (const nlohmann::json& record : metrics(run, "train")) {
        const auto it = record["step"].get<double>();
        const double p = left(shape, std::min(1.0, (16 - it) / 8));
        EXPECT_NEAR(record["lr_multiplier"].get<double>(),
                    it < 2 ? (it + 1) / 2 : p + (1 - p) * 0.05, 1e-6)
            << run << it;
      }
    }
}

TEST_F(BatchRamp, MalformedOnesAreRefused) {
  const auto error_of = [&](const std::string& sizes) {
    const Outcome outcome = run_program(options("bad", "--total-batch-size " + sizes));
    EXPECT_EQ(outcome.code, 2) << sizes;
    return outcome.err;
  };
  EXPECT_THAT(error_of("256@1,768@3"), HasSubstr("does not begin at step 0"));
  EXPECT_THAT(error_of("256,768@3"), HasSubstr("has a batch without @STEP"));
  EXPECT_THAT(error_of("256@0,768@1.5"), HasSubstr("'1.5' is neither a step nor a share"));
  EXPECT_THAT(error_of("256@0,some@3"), HasSubstr("'some' is not a whole number"));
}

}  // namespace
}  // namespace muo
