#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/philox.h"
#include "support/files.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "support/whole_run.h"
#include "system/training_run.h"

// Runs that are killed, stopped, moved and resumed many times. The tests here are short; the suite
// SlowSurvival has the long forms.
namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Survival : public Training {
 protected:
  // Sends SIGKILL at random moments; the resumed run must reach the same end.
  void expect_to_survive_kills(int kills) {
    const std::string run =
        "--num-iterations 150 --save-every 3 --keep-last 3 --eval-every 40 --resume auto ";
    train("whole", run);
    const std::string want = tensors("whole", 150);
    const std::vector<double> curve = losses("whole");
    const CounterRandom random(7, "kills");
    std::uint64_t draw = 0;
    std::int64_t resumed = 0;
    for (int run_number = 0; kills > 0; ++run_number) {
      const std::string out = "killed" + std::to_string(run_number);
      bool ended = false;  // ended by itself; otherwise the log may lack steps after the last save
      for (; !fs::exists(trainer::checkpoint_directory(path(out), 150)); --kills) {
        const std::string delay = std::to_string(random.bits(draw++) % 900);
        const Outcome outcome =
            run_program(options(out, run) +
                        (kills > 0 ? " & pid=$!; sleep 0." + std::string(3 - delay.size(), '0') +
                                         delay + "; kill -KILL $pid; wait $pid"
                                   : ""));
        ASSERT_TRUE(outcome.code == 137 || outcome.code == 0) << outcome.code << outcome.err;
        ended = outcome.code == 0;
        std::vector<std::string> skipped;
        const auto newest = trainer::newest_checkpoint(path(out), skipped);
        EXPECT_THAT(skipped, IsEmpty()) << "a published checkpoint is not whole";
        resumed += newest ? 1 : 0;
      }
      EXPECT_TRUE(tensors(out, 150) == want) << out;
      if (ended) {
        EXPECT_EQ(losses(out), curve) << out;
      }
      EXPECT_LE(trainer::find_checkpoints(path(out)).size(),
                4U);  // if killed before it removed one
      // A kill during the last save leaves files that no later run removed.
      for (const auto& item : fs::directory_iterator(path(out) / "checkpoints"))
        EXPECT_THAT(item.path().filename().string(),
                    AnyOf(StartsWith("step_"), StartsWith(ended ? "step_" : ".step_")));
      fs::remove_all(path(out));
    }
    EXPECT_GT(resumed, 0);
  }

  // Memory, threads and open files of a run over time.
  struct Sample {
    double anonymous_kib = 0;
    int threads = 0;
    int files = 0;
  };
  std::vector<Sample> watch(const std::string& out, const std::string& more) {
    const fs::path samples = path("samples");
    const Outcome outcome =
        run_program(options(out, more) +
                    " >/dev/null & pid=$!; while s=$(awk '/^(RssAnon|Threads):/{print $2}' "
                    "/proc/$pid/status) && [ $(echo $s | wc -w) = 2 ]; do echo $s $(ls "
                    "/proc/$pid/fd | wc -l) >>" +
                    samples.string() + "; sleep 0.05; done; wait $pid");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::ifstream in(samples);
    std::vector<Sample> all;
    for (Sample s; in >> s.anonymous_kib >> s.threads >> s.files;)
      all.push_back(s);
    return all;
  }
  void expect_flat(int steps) {
    const std::vector<Sample> all =
        watch("soak", "--num-iterations " + std::to_string(steps) +
                          " --save-every 20 --keep-last 2 --eval-every 25 --sample-every 50 "
                          "--eval-tokens 128 --verify-sync-every 30 ");
    ASSERT_GE(all.size(), 10U);
    // The first quarter is start-up. Temporary memory of saves and evaluations is above the
    // minimum; a leak in each of them raises the minimum, seven times from the start to the end of
    // the second quarter.
    const std::span<const Sample> samples(all);
    const std::size_t quarter = all.size() / 4;
    const std::span<const Sample> before = samples.subspan(quarter, quarter);
    const std::span<const Sample> after = samples.subspan(2 * quarter);
    const auto least = [](std::span<const Sample> part, auto member) {
      return std::ranges::min(part, {}, member).*member;
    };
    EXPECT_LE(least(after, &Sample::threads), least(before, &Sample::threads) + 3);
    EXPECT_LE(least(after, &Sample::files), least(before, &Sample::files) + 3);
    // A sanitizer keeps freed memory; instead, its leak detector checks at the end.
    if (!test::kSanitized) {
      EXPECT_LE(least(after, &Sample::anonymous_kib), least(before, &Sample::anonymous_kib) + 512);
    }
    RecordProperty("samples", static_cast<int>(all.size()));
    RecordProperty("kib_second_quarter", static_cast<int>(least(before, &Sample::anonymous_kib)));
    RecordProperty("kib_second_half", static_cast<int>(least(after, &Sample::anonymous_kib)));
  }

  // Compares a run whose quarters have the options in `legs` with an undisturbed one. Controls are
  // runs that differ from the undisturbed one only in the order of rounding. Returns the output of
  // the resumed runs.
  std::string expect_to_follow(std::int64_t steps, const std::vector<std::string>& controls,
                               const std::vector<std::string>& legs) {
    const std::string run = "--num-iterations " + std::to_string(steps) + " --eval-every -1 ";
    train("undisturbed", run);
    const std::vector<double> want = losses("undisturbed");
    std::vector<double> distances;
    for (std::size_t i = 0; i < controls.size(); ++i) {
      const std::string out = "control" + std::to_string(i);
      train(out, run + controls[i]);
      distances.push_back(test::curve_distance(losses(out), want));
    }
    const std::string saves = run + "--save-every " + std::to_string(steps / 4) + " --resume auto ";
    std::int64_t border = 0;
    std::string said;
    for (const std::string& leg : legs) {
      const Outcome outcome = train("moved", saves + leg);
      said += outcome.out;
      if (border > 0) {
        EXPECT_THAT(outcome.out, HasSubstr("at step " + std::to_string(border)));
      }
      border += steps / 4;
      for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path("moved")))
        if (found.step > border) fs::remove_all(found.path);
    }
    const std::vector<double> is = losses("moved");
    EXPECT_EQ(is.size(), want.size());
    EXPECT_LT(is.back(), 0.8 * is.front());
    const double distance = test::curve_distance(is, want);
    EXPECT_GT(distance, 0);
    EXPECT_LE(distance, 4 * test::median(distances));
    RecordProperty("distance", std::to_string(distance));
    RecordProperty("median_of_controls", std::to_string(test::median(distances)));
    return said;
  }
  const std::vector<std::string> worlds_ = {"--devices 2", "--devices 3", "--devices 1",
                                            "--devices 4 --device-batch-size 3"};

  // The log without times: the kind, step and one number of each line.
  [[nodiscard]] std::vector<std::string> log_of(const std::string& out) const {
    const std::map<std::string, std::string> numbers = {{"train", "loss"},
                                                        {"eval", "val_loss"},
                                                        {"update", "matrices_rms"},
                                                        {"matrices", "layer_ratio"}};
    std::vector<std::string> lines;
    for (const nlohmann::json& record : test::metrics_of(path(out)))
      lines.push_back(fmt::format("{} {} {}", record["kind"].dump(), record["step"].dump(),
                                  record.at(numbers.at(record["kind"])).dump()));
    return lines;
  }
};

TEST_F(Survival, KillsAtRandomMomentsLoseNothingThatWasSaved) { expect_to_survive_kills(6); }
TEST_F(Survival, MemoryThreadsAndFilesAreFlat) { expect_flat(600); }
TEST_F(Survival, ARunThatMovesBetweenWorldsFollowsTheUndisturbedCurve) {
  expect_to_follow(
      40, {"--devices 1", "--devices 3 --device-batch-size 8", "--devices 4 --device-batch-size 6"},
      worlds_);
}
// Other forms of the same function round differently, and the change is reported.
TEST_F(Survival, ARunResumedWithAnotherNewtonSchulzFollowsTheUndisturbedCurve) {
  const std::string said = expect_to_follow(
      40, {"--devices 1", "--devices 3 --device-batch-size 8", "--devices 4 --device-batch-size 6"},
      {"--newton-schulz plain", "--newton-schulz gram", "--newton-schulz symmetric",
       "--newton-schulz gram_merged"});
  EXPECT_THAT(said, AllOf(HasSubstr("newton-schulz plain, now gram"),
                          HasSubstr("newton-schulz gram, now symmetric"),
                          HasSubstr("newton-schulz symmetric, now gram_merged")));
}

// The process is killed in the evaluation, in the middle of the run and at its end: a rank pauses
// there until the preceding checkpoint is on the disk.
TEST_F(Survival, ALostEvaluationIsRepeated) {
  const std::string run = "--backend cuda --save-before-eval 0 --resume auto ";
  const std::string plugin = "MUO_FAULT_BACKEND=host MUO_CUDA_PLUGIN=muograph_faults ";
  ASSERT_EQ(run_program(options("whole", run), plugin).code, 0);
  const std::vector<std::string> want = log_of("whole");
  for (const std::int64_t step : {10, 20}) {
    const Outcome killed = run_program(
        options("killed", run) + " >/dev/null & pid=$!; " +
            test::until("[ -d " + trainer::checkpoint_directory(path("killed"), step).string() +
                        " ]") +
            "kill -KILL $pid; wait $pid",
        plugin + fmt::format("MUO_FAULT='hang:0:{}:synchronize:1:the evaluation' ", step));
    ASSERT_EQ(killed.code, 137) << killed.err;
    const std::vector<std::string> is = log_of("killed");
    ASSERT_LT(is.size(), want.size());
    ASSERT_THAT(want[is.size()], StartsWith(fmt::format("\"eval\" {} ", step)));
  }
  const Outcome last = run_program(options("killed", run), plugin);
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(log_of("killed"), want);
  const Outcome over = run_program(options("killed", run), plugin);
  EXPECT_EQ(over.code, 2);
  EXPECT_THAT(over.err, HasSubstr("nothing is left to train"));
}

class SlowSurvival : public Survival {
 protected:
  void SetUp() override {
    if (std::getenv("MUO_SLOW") == nullptr)  // NOLINT(concurrency-mt-unsafe): one thread
      GTEST_SKIP() << "minutes long; scripts/test.sh --slow runs it";
  }
};

TEST_F(SlowSurvival, AHundredKills) { expect_to_survive_kills(100); }
TEST_F(SlowSurvival, TenThousandSteps) { expect_flat(10000); }
TEST_F(SlowSurvival, FourHundredStepsOnFourWorlds) {
  expect_to_follow(400,
                   {"--devices 1", "--devices 1 --device-batch-size 8",
                    "--devices 1 --device-batch-size 6", "--devices 3 --device-batch-size 8",
                    "--devices 3 --device-batch-size 2", "--devices 4 --device-batch-size 6",
                    "--devices 4 --device-batch-size 3", "--device-batch-size 2"},
                   worlds_);
}

// The signals arrive while a checkpoint is being written that will never be finished.
TEST_F(Survival, ASecondSignalStopsAtOnceAndHarmsNothing) {
  const std::string run =
      "--backend cuda --num-iterations 4 --save-every 2 --eval-every -1 --resume auto ";
  const std::string plugin = "MUO_FAULT_BACKEND=host MUO_CUDA_PLUGIN=muograph_faults ";
  ASSERT_EQ(run_program(options("whole", run), plugin).code, 0);
  const auto until = [&](std::string_view words, const char* file) {
    return test::until(fmt::format("grep -sq '{}' {}", words, (path("part") / file).string()));
  };
  const Outcome outcome = run_program(
      options("part", run) + " >/dev/null & pid=$!; " + until("\"step\":1,", "metrics.jsonl") +
          "kill -INT $pid; " + until("SIGINT: stopping", "output.log") +
          "sleep 1.1; kill -TERM $pid; wait $pid",
      plugin + "MUO_FAULT='hang:0:2:copy:2:the saving of a checkpoint' ");
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  EXPECT_TRUE(trainer::find_checkpoints(path("part")).empty());
  ASSERT_EQ(run_program(options("part", run), plugin).code, 0);
  EXPECT_TRUE(tensors("part", 4) == tensors("whole", 4));
}

// While one process trains, others can read its checkpoints, but none can resume its run; the lock
// ends with the process.
TEST_F(Survival, ARunDirectoryIsOfOneProcessAtATime) {
  struct Process {
    Process() = default;
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
      if (id > 0) ::kill(id, SIGKILL);
    }
    pid_t id = 0;
  } first;
  constexpr int kEvery = test::kSanitized ? 60 : 300;
  const std::string saves = fmt::format("--save-every {} ", kEvery);
  const std::string run = saves + "--num-iterations 100000 --eval-every -1 ";
  const std::string id_file = path("pid").string();
  const Outcome started = run_program(
      options("run", run) + " >/dev/null & pid=$!; echo $pid >" + id_file + "; " +
      test::until("[ -d " + trainer::checkpoint_directory(path("run"), kEvery).string() + " ]") +
      "kill -0 $pid");
  first.id = std::stoi(test::read_file(id_file));
  ASSERT_EQ(started.err, "");
  const Outcome second = run_program(options("run", saves + "--num-iterations 2000 --resume auto"));
  EXPECT_EQ(second.code, 2);
  EXPECT_EQ(second.out, "");
  EXPECT_THAT(second.err, AllOf(HasSubstr(fmt::format("--out {}: in use by process {} on ",
                                                      path("run").string(), first.id)),
                                HasSubstr("run.lock: wait until it ends, end it, or give")));
  EXPECT_EQ(std::ranges::count(second.err, '\n'), 1);
  for (const char* const reader :
       {"checkpoint inspect", "checkpoint verify", "sample --max-tokens 3", "eval"}) {
    const Outcome read = run_program(std::string(reader) + " --checkpoint " + path("run").string());
    EXPECT_EQ(read.code, 0) << reader << read.err;
  }
  train("branch",
        saves + fmt::format("--num-iterations {} --eval-every -1 --resume {}", kEvery + 10,
                            trainer::checkpoint_directory(path("run"), kEvery).string()));
  ASSERT_EQ(::kill(first.id, SIGKILL), 0) << "it ended before";
  const std::int64_t step = trainer::find_checkpoints(path("run")).front().step;
  const Outcome resumed = train(
      "run", "--eval-every -1 --resume auto --num-iterations " + std::to_string(step + kEvery));
  EXPECT_THAT(resumed.out, HasSubstr("resuming from"));
}

TEST_F(Survival, SavesByTheClockAndBeforeLongEvaluationsChangeNothing) {
  train("plain", "--num-iterations 60");
  const std::string want = tensors("plain", 60);
  EXPECT_EQ(trainer::find_checkpoints(path("plain")).size(), 1U);
  train("long", "--num-iterations 400");  // takes longer than the 60 ms of --save-minutes below
  train("minutes", "--num-iterations 400 --save-minutes 0.001");
  EXPECT_GT(trainer::find_checkpoints(path("minutes")).size(), 1U);
  EXPECT_TRUE(tensors("minutes", 400) == tensors("long", 400));
  train("before", "--num-iterations 60 --save-before-eval 0 --eval-every 15");
  std::vector<std::int64_t> steps;
  for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path("before")))
    steps.push_back(found.step);
  EXPECT_THAT(steps, testing::ElementsAre(60, 45, 30, 15));
  EXPECT_TRUE(tensors("before", 60) == want);
  train("wait",
        "--num-iterations 60 --save-every 4 --save-mode wait --keep-last 2 --keep-every 16");
  steps.clear();
  for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path("wait")))
    steps.push_back(found.step);
  EXPECT_THAT(steps, testing::ElementsAre(60, 56, 48, 32, 16));
  EXPECT_TRUE(tensors("wait", 60) == want);
}

TEST_F(Survival, AFileThatCannotGrowIsAClearMessageAndExitThree) {
  for (const char* const mode : {"background", "wait"}) {
    const std::string out = mode;
    const Outcome outcome = run_program(
        options(
            out,
            "--n-embd 128 --save-every 5 --num-iterations 400 --eval-every -1 --save-mode " + out),
        "ulimit -f 300;");
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("checkpoint of step 5 not saved: "), HasSubstr("model.safetensors"),
                      HasSubstr("File too large; free space or write elsewhere (--out)")));
    EXPECT_THAT(trainer::find_checkpoints(path(out)), IsEmpty());
  }
}

// The directory disappears and reappears. Steps are long enough for a shell to do this.
TEST_F(Survival, OnSaveErrorContinueLogsItAndTriesAgain) {
  const std::string run =
      "--num-iterations 24 --n-embd 256 --save-every 2 --eval-every -1 --total-batch-size " +
      std::string(test::kSanitized ? "768 " : "2304 ");
  train("whole", run);
  const std::string checkpoints = (path("part") / "checkpoints").string();
  const std::string saved = path("saved").string();
  const std::string log = path("log").string();
  const Outcome outcome = run_program(
      options("part", run + "--on-save-error continue") + " >" + log + " & pid=$!; " +
      test::until("[ -d " + checkpoints + "/step_00000002 ]") +
      test::while_stopped("mv " + checkpoints + " " + saved + "; touch " + checkpoints) +
      test::until("grep -q 'warning: checkpoint of step' " + log) +
      test::while_stopped("rm " + checkpoints + "; mv " + saved + " " + checkpoints) + "wait $pid");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(test::read_file(log), HasSubstr("not saved"));
  EXPECT_TRUE(tensors("part", 24) == tensors("whole", 24));
  EXPECT_TRUE(fs::exists(trainer::checkpoint_directory(path("part"), 2)));
}

TEST_F(Survival, TheLastSaveMustSucceedWhateverTheOptions) {
  const std::string checkpoints = (path("run") / "checkpoints").string();
  const Outcome outcome = run_program(
      options("run", "--num-iterations 200 --on-save-error continue --eval-every -1") +
      " & pid=$!; " + test::until("[ -s " + (path("run") / "metrics.jsonl").string() + " ]") +
      test::while_stopped("rmdir " + checkpoints + "; touch " + checkpoints) + "wait $pid");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("checkpoint of step 200 not saved: "));
}

}  // namespace
}  // namespace muo
