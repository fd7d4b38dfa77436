#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "support/program.h"
#include "system/training_run.h"
#include "trainer/train/log_lines.h"

// Runs whose length is a time: --time-budget, --positions-from and --result.
namespace muo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_program;
using testing::HasSubstr;

class TimeBudget : public Training {
 protected:
  static constexpr const char* kAnySteps = "--num-iterations auto ";

  // Seconds of training at the run's end.
  [[nodiscard]] double spent(const std::string& out) const {
    const std::vector<json> paces = metrics(out, "pace");
    EXPECT_EQ(paces.back()["position"], 1.0);
    EXPECT_EQ(paces.back()["step"], std::ssize(losses(out)));
    return paces.back()["seconds"];
  }
  // No step begins more than half a step after the budget, even if the machine is busy.
  void expect_length(const std::string& out, double seconds) const {
    std::vector<double> steps;
    for (const json& record : metrics(out, "train"))
      steps.push_back(record["step_ms"].get<double>() / 1000);
    const double longest = *std::ranges::max_element(steps);
    EXPECT_LT(spent(out) - steps.back(), seconds) << out;
    EXPECT_GT(spent(out), seconds - longest) << out;
  }
};

TEST_F(TimeBudget, EndsInTimeAndIsRepeatedBitwiseFromItsLog) {
  for (const std::string devices : {"1", "2"}) {
    const std::string more = kAnySteps + ("--devices " + devices + " --eval-every 50 ");
    const std::string run = "run" + devices, again = "again" + devices;
    const Outcome outcome = train(run, more + "--time-budget 1s");
    EXPECT_THAT(outcome.out, HasSubstr("horizon: 1s of training\n"));
    expect_length(run, 1);
    // The schedules reach their ends.
    const json last = metrics(run, "train").back();
    EXPECT_LT(last["lr_multiplier"].get<double>(), 0.5);
    train(again, more + "--positions-from " + path(run + "/metrics.jsonl").string());
    EXPECT_EQ(losses(again), losses(run));
    const std::int64_t steps = std::ssize(losses(run));
    EXPECT_EQ(tensors(again, steps), tensors(run, steps));
    EXPECT_EQ(metrics(again, "eval"), metrics(run, "eval"));
  }
}

// All devices of the host, and two ranks of one device of the SIMT tier.
TEST_F(TimeBudget, ADeviceFollowsTheSamePositions) {
  std::string log;
  for (const Pace& pace : {Pace{0, 0, 0}, Pace{2, 0.25, 0.25}, Pace{4, 0.75, 0.125}, Pace{6, 1, 0}})
    log += trainer::pace_line(pace, 1) + "\n";
  test::write_file(path("log.jsonl"), log);
  const std::string more = kAnySteps + ("--total-batch-size 256 --eval-every -1 --positions-from " +
                                        path("log.jsonl").string());
  train("host", more);
  train("one", more + " --devices 1");
  const Outcome outcome = run_program(
      options("device", more + " --backend cuda --devices 1 --ranks-per-device 2 --dtype fp32"),
      "MUO_CUDA_PLUGIN=muograph_simt");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> host = metrics("host", "train"), device = metrics("device", "train");
  const std::vector<double> one = losses("one");
  ASSERT_EQ(host.size(), 6);
  ASSERT_EQ(device.size(), 6);
  ASSERT_EQ(one.size(), 6);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(host[i]["loss"].get<double>(), one[i], 1e-5) << i;
    EXPECT_NEAR(device[i]["loss"].get<double>(), one[i], 1e-5) << i;
    for (const char* scheduled : {"lr_multiplier", "muon_momentum", "muon_weight_decay"})
      EXPECT_FLOAT_EQ(device[i][scheduled].get<float>(), host[i][scheduled].get<float>()) << i;
  }
  EXPECT_NEAR(host[4]["lr_multiplier"].get<double>(), 0.25 / 0.65 * 0.95 + 0.05, 1e-6);
}

TEST_F(TimeBudget, AResumedRunTakesWhatIsLeft) {
  const std::string more = kAnySteps + std::string("--time-budget 1500ms ");
  EXPECT_EQ(run_program(options("run", more)).code, 2);  // not a unit
  const std::string budget = kAnySteps + std::string("--time-budget 1.5 --save-every 10 ");
  train("run", budget);
  const std::string half = trainer::checkpoint_directory(path("run"), 10);
  train("rest", budget + "--resume " + half);
  const std::vector<json> paces = metrics("rest", "pace");
  const json manifest = json::parse(test::read_file(half + "/manifest.json"));
  EXPECT_EQ(manifest["time_budget"]["budget"], 1.5);
  EXPECT_EQ(paces.front()["seconds"], manifest["time_budget"]["spent"]);
  EXPECT_EQ(paces.front()["per_step"], manifest["time_budget"]["per_step"]);
  EXPECT_GT(paces.front()["per_step"].get<double>(), 0);
  EXPECT_GT(paces.back()["seconds"].get<double>(), 1.3);
  // Repeated from the checkpoint's step on.
  train("again", kAnySteps + ("--resume " + half + " --positions-from " +
                              path("rest/metrics.jsonl").string()));
  EXPECT_EQ(losses("again"), losses("rest"));
  const Outcome early = run_program(
      options("early", kAnySteps + ("--positions-from " + path("rest/metrics.jsonl").string())));
  EXPECT_EQ(early.code, 2);
  EXPECT_THAT(early.err, HasSubstr("--resume a checkpoint of that step or later"));
  // Nothing is left, unless the budget grows.
  const std::string resume = "train --resume " + path("rest").string();
  const Outcome over = run_program(resume);
  EXPECT_EQ(over.code, 2);
  EXPECT_THAT(over.err, HasSubstr("the --time-budget of 1.5s is spent: nothing is left to train"));
  const Outcome longer = run_program(resume + " --time-budget 2");
  EXPECT_EQ(longer.code, 0) << longer.err;
  EXPECT_THAT(longer.out, HasSubstr("time-budget 1.5s, now 2s"));
}

TEST_F(TimeBudget, WhicheverComesFirstEndsTheRun) {
  train("steps", "--num-iterations 12 --time-budget 1h");
  EXPECT_EQ(losses("steps").size(), 12);
  EXPECT_LT(metrics("steps", "pace").back()["position"].get<double>(), 0.1);
  train("time", "--num-iterations 1000000 --time-budget 0.5");
  expect_length("time", 0.5);
  const Outcome both =
      run_program(options("both", kAnySteps + ("--time-budget 5 --positions-from " +
                                               path("steps/metrics.jsonl").string())));
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("give only one of them"));
  train("plain");
  const Outcome late =
      run_program("train --resume " + path("plain").string() + " --time-budget 5m");
  EXPECT_EQ(late.code, 2);
  EXPECT_THAT(late.err, HasSubstr("without a budget"));
}

// Two devices train four trials for an eighth of their time, then two to a quarter, and one to half
// of it and to its end: 9/8 of a trial's time.
TEST_F(TimeBudget, ASweepDividesItsTimeAmongTrialsAndRungs) {
  std::string command =
      options("sweep", kAnySteps + std::string("--sweep-budget 3s --halving 2 --eval-every -1 "
                                               "--matrix-lr 0.05,0.1,0.2,0.3"));
  command.replace(0, 5, "sweep");
  const Outcome outcome = run_program(command);
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("captures: one on each of 2 devices"));
  EXPECT_THAT(outcome.out,
              HasSubstr("halving: after 0.333s, 0.667s, 1.33s the best 1 of 2 continues"));
  constexpr double kEach = 2.666;
  std::vector<double> shares;  // of the time, by trial
  for (const char* trial : {"0000", "0001", "0002", "0003"}) {
    const std::string run = std::string("sweep/trials/") + trial;
    double seconds = 0;
    for (const json& record : metrics(run, "train"))
      seconds += record["step_ms"].get<double>() / 1000;
    shares.push_back(seconds / kEach);
    if (seconds > 0.9 * kEach) {
      expect_length(run, kEach);
    }
  }
  std::ranges::sort(shares);
  EXPECT_NEAR(shares[0], 0.125, 0.1);
  EXPECT_NEAR(shares[1], 0.125, 0.1);
  EXPECT_NEAR(shares[2], 0.25, 0.1);
  EXPECT_NEAR(shares[3], 1, 0.1);
  const std::string again = run_program("sweep --resume " + path("sweep").string()).out;
  EXPECT_THAT(again, HasSubstr("best: trial"));
  const Outcome both = run_program(command + " --resume auto --time-budget 1s");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("give only one of them"));
}

TEST_F(TimeBudget, TheResultIsOneLine) {
  const Outcome outcome = train("run", "--result -");
  const json result = json::parse(outcome.out);
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1);
  EXPECT_THAT(outcome.err, HasSubstr("step "));
  const json eval = metrics("run", "eval").back();
  EXPECT_EQ(result["state"], "done");
  EXPECT_EQ(result["run"], path("run").string());
  EXPECT_EQ(result["step"], 20);
  EXPECT_EQ(result["tokens"], 20 * 768);
  EXPECT_EQ(result["val_loss"], eval["val_loss"]);
  EXPECT_EQ(result["val_bpb"], eval["val_bpb"]);
  for (const char* positive : {"train_seconds", "tokens_per_s", "mfu", "peak_memory_bytes"})
    EXPECT_GT(result[positive].get<double>(), 0) << positive;

  const std::string file = path("result.json");
  const Outcome diverged =
      run_program(options("nan",
                          "--matrix-lr 1e3 --embedding-lr 1e3 --unembedding-lr 1e3 --model plain "
                          "--outlier-deviations 0.001 --on-outlier skip --max-skipped 0 --result " +
                              file));
  EXPECT_EQ(diverged.code, 3);
  const json failed = json::parse(test::read_file(file));
  EXPECT_EQ(failed["state"], "diverged");
  EXPECT_THAT(failed["message"], HasSubstr("updates were skipped"));
  const Outcome refused = run_program(options("no", "--result /nowhere/result.json"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--result: cannot write to /nowhere/result.json"));
}

}  // namespace
}  // namespace muo
