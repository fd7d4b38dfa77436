// Checks what scripts/watch_wandb.py passes to W&B; a few lines of Python take the place of W&B.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/command.h"
#include "support/files.h"
#include "support/paths.h"
#include "system/training_run.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Writes its calls as lines of JSON. With KILL_AT, it exits like a killed process at that call of
// log().
constexpr const char* kStandIn = R"py(
import json, os
logged = 0
def write(what, value):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([what, value]) + "\n")
class Run:
    def define_metric(self, name, step_metric=None): write("define", [name, step_metric])
    def log(self, values, step):
        global logged
        logged += 1
        if logged == int(os.environ.get("KILL_AT", 0)): os._exit(9)
        write("at", step)
        write("log", {k: str(v) if v != v else v for k, v in values.items()})
    def finish(self): write("finish", None)
def init(**options):
    write("init", options)
    return Run()
)py";

class WatchWandb : public Training {
 protected:
  void SetUp() override {
    if (test::run_command("python3 -c 'import tomllib'").code != 0)
      GTEST_SKIP() << "no python3 with tomllib (3.11): scripts/watch_wandb.py needs one";
    fs::create_directories(path("modules"));
    test::write_file(path("modules") / "wandb.py", kStandIn);
  }
  Outcome watch(const std::string& out, const std::string& more = "",
                const std::string& environment = "") {
    return test::run_command(fmt::format("python3 {}/scripts/watch_wandb.py {} {}",
                                         test::source_directory(), path(out).string(), more),
                             fmt::format("PYTHONPATH={} CALLS={} {}", path("modules").string(),
                                         calls_.string(), environment));
  }
  // The values of the calls of this kind since the start or the last forget().
  [[nodiscard]] std::vector<json> calls(const std::string& what) const {
    std::vector<json> out;
    if (!fs::exists(calls_)) return out;
    std::istringstream in(test::read_file(calls_));
    for (std::string line; std::getline(in, line);)
      if (const json call = json::parse(line); call[0] == what) out.push_back(call[1]);
    return out;
  }
  void forget() const { fs::remove(calls_); }
  // The number of times that each step was logged with the key.
  [[nodiscard]] std::map<int, int> steps(const std::string& key) const {
    std::map<int, int> out;
    for (const json& values : calls("log"))
      if (values.contains(key)) ++out[values["step"].get<int>()];
    return out;
  }
  void expect_each_once(const std::string& out) const {
    std::map<int, int> trained, evaluated;
    for (const json& record : metrics(out, "train"))
      ++trained[record["step"].get<int>()];
    for (const json& record : metrics(out, "eval"))
      ++evaluated[record["step"].get<int>()];
    EXPECT_EQ(steps("train/loss"), trained);
    EXPECT_EQ(steps("eval/val_loss"), evaluated);
  }

  const fs::path calls_ = path("calls");
};

TEST_F(WatchWandb, LogsEveryNumberOnceAndResumesWhereItEnded) {
  train("run");
  const Outcome first = watch("run", "--project trials");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("43 records to trials/"));
  ASSERT_THAT(calls("init"), SizeIs(1));
  const json init = calls("init")[0];
  EXPECT_EQ(init["project"], "trials");
  EXPECT_EQ(init["name"], "run");
  EXPECT_EQ(init["resume"], "allow");
  EXPECT_EQ(init["config"]["matrix-lr"], 0.3);
  EXPECT_THAT(calls("define"), ElementsAre(json({"step", nullptr}), json({"train/*", "step"}),
                                           json({"update/*", "step"}), json({"eval/*", "step"})));
  EXPECT_THAT(calls("finish"), SizeIs(1));
  expect_each_once("run");
  const json record = metrics("run", "train")[7];
  for (const json& values : calls("log"))
    if (values["step"] == 7 && values.contains("update/wte_rms")) {
      EXPECT_EQ(values["update/wte_rms"], metrics("run", "update")[7]["wte_rms"]);
    } else if (values["step"] == 7) {
      EXPECT_EQ(values["train/loss"], record["loss"]);
      EXPECT_EQ(values["train/lr_multiplier"], record["lr_multiplier"]);
      EXPECT_EQ(values["train/grad_norm"], record["grad_norm"]);
      EXPECT_EQ(values["train/tokens"], record["tokens"]);
    }

  EXPECT_THAT(watch("run").out, HasSubstr("0 records to trials/"));
  train("run", "--num-iterations 25 --resume auto");
  EXPECT_THAT(watch("run").out, HasSubstr("11 records to trials/"));
  expect_each_once("run");
  for (const json& again : calls("init"))
    EXPECT_EQ(again["id"], init["id"]);
  EXPECT_THAT(calls("at"), SizeIs(54));
  for (std::size_t i = 0; i < 54; ++i)
    EXPECT_EQ(calls("at")[i], i) << "W&B drops what comes with an earlier step of its own";
  const Outcome other = watch("run", "--project elsewhere");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("--project elsewhere: " + path("run").string() +
                                   " is mirrored to trials: give that project, or remove"));
}

// The second attempt repeats steps already logged.
TEST_F(WatchWandb, AResumedRunLogsNoStepTwice) {
  train("run", "--save-every 5");
  watch("run");
  for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path("run")))
    if (found.step > 10) fs::remove_all(found.path);
  train("run", "--num-iterations 24 --resume auto");
  watch("run");
  expect_each_once("run");
}

TEST_F(WatchWandb, FollowsARunToItsEnd) {
  const Outcome outcome = test::run_command(
      fmt::format("{} {} >/dev/null & pid=$!; {}"
                  "python3 {}/scripts/watch_wandb.py {} --follow; code=$?; wait; exit $code",
                  test::program(), options("run", "--num-iterations 200 --eval-every 50"),
                  test::until("[ -e " + path("run").string() + "/metrics.jsonl ]"),
                  test::source_directory(), path("run").string()),
      fmt::format("export PYTHONPATH={} CALLS={};", path("modules").string(), calls_.string()));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(metrics("run", "train"), SizeIs(200));
  expect_each_once("run");
}

// Another log of the same length replaces the file, as if by a resumed run under its lock.
TEST_F(WatchWandb, FollowsALogThatIsReplaced) {
  const auto line = [](int step) {
    return fmt::format(R"({{"kind":"train","step":{},"loss":2.5,"mfu":null}})", step) + "\n";
  };
  fs::create_directories(path("run"));
  test::write_file(path("run") / "config.toml", "seed = 1\n");
  test::write_file(path("run") / "metrics.jsonl", line(0) + line(1));
  test::write_file(path("run") / "new", line(1) + line(2));
  const std::string until_step = "for i in $(seq 1000); do grep -q '\"step\": {}' " +
                                 calls_.string() + " && break; sleep 0.01; done; ";
  test::write_file(path("training.sh"),
                   fmt::format("python3 {}/scripts/watch_wandb.py {} --follow & ",
                               test::source_directory(), path("run").string()) +
                       fmt::format(fmt::runtime(until_step), 1) +
                       fmt::format("mv {0}/new {0}/metrics.jsonl; ", path("run").string()) +
                       fmt::format(fmt::runtime(until_step), 2));
  const Outcome outcome = test::run_command(
      fmt::format("flock -o {}/run.lock sh {}", path("run").string(), path("training.sh").string()),
      fmt::format("PYTHONPATH={} CALLS={}", path("modules").string(), calls_.string()));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(steps("train/loss"), (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
}

TEST_F(WatchWandb, LogsNoStepTwiceIfKilled) {
  train("run");
  EXPECT_EQ(watch("run", "", "KILL_AT=8").code, 9);
  EXPECT_THAT(calls("log"), SizeIs(7));
  EXPECT_EQ(watch("run").code, 0);
  // The call at which it was killed is missing.
  EXPECT_THAT(calls("log"), SizeIs(42));
  for (const char* const key : {"train/loss", "update/wte_rms", "eval/val_loss"})
    for (const auto& [step, times] : steps(key))
      EXPECT_EQ(times, 1) << key << step;
}

TEST_F(WatchWandb, WaitsForCompleteLinesAndLogsNonFiniteNumbersAsNan) {
  const auto line = [](int step, const char* loss, const char* more) {
    return fmt::format(
        R"({{"kind":"train","step":{},"loss":{},"mfu":null,"skipped":"nonfinite"{}}})", step, loss,
        more);
  };
  fs::create_directories(path("run"));
  test::write_file(path("run") / "config.toml", "seed = 1\n");
  const std::string whole =
      line(0, "2.5", "") + "\n" + line(1, "null", ",\"nonfinite\":true") + "\n";
  test::write_file(path("run") / "metrics.jsonl", whole + line(2, "3", "").substr(0, 30));
  EXPECT_EQ(watch("run").code, 0);
  EXPECT_THAT(calls("log"), ElementsAre(json({{"step", 0}, {"train/loss", 2.5}}),
                                        json({{"step", 1}, {"train/loss", "nan"}})));
  forget();
  test::write_file(path("run") / "metrics.jsonl", whole + line(2, "3", "") + "\n");
  watch("run");
  EXPECT_THAT(calls("log"), ElementsAre(json({{"step", 2}, {"train/loss", 3}})));
}

TEST_F(WatchWandb, ReportsMissingFilesInOneLine) {
  const Outcome no_run = watch("nowhere");
  EXPECT_EQ(no_run.code, 1);
  EXPECT_EQ(no_run.err, "watch_wandb.py: " + path("nowhere").string() +
                            ": contains no config.toml: give the directory of a run\n");
  train("run");
  test::write_file(path("modules") / "wandb.py",
                   "raise ImportError(\"No module named 'wandb'\")\n");
  const Outcome no_package = watch("run");
  EXPECT_EQ(no_package.code, 1);
  EXPECT_THAT(no_package.err, AllOf(HasSubstr("the Python package wandb is missing (No module"),
                                    EndsWith("): pip install wandb\n")));
  EXPECT_EQ(std::ranges::count(no_package.err, '\n'), 1);
  EXPECT_FALSE(fs::exists(path("run") / "wandb.json"));
  EXPECT_THAT(calls("init"), IsEmpty());
}

}  // namespace
}  // namespace muo
