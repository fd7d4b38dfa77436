#include "kit/sweep/sweep_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "cli/cli.h"
#include "support/command_line.h"
#include "support/files.h"
#include "trainer/checkpoint/model_json.h"

namespace muo::kit {
namespace {

// Four trials of a tiny model on one device, alternating between two groups; halving keeps two.
class SweepRunTest : public testing::Test {
 protected:
  // States of the trials and the number of captures. How::promoted is called before another worker
  // may take the trial; it returns false if the promotion could not be recorded.
  struct Outcome {
    std::vector<TrialState> states;
    int captures = 0;
    std::string failure;
  };
  struct How {
    const WorkerMemory* memory = nullptr;
    std::function<bool(const SweepDirectory&, std::size_t trial)> promoted = {};
    bool asynchronous = false;
    int fail_at = -1;  // number of results after which the journal cannot be written
  };
  Outcome run(const std::string& name, const How& how) {
    const auto path = directory_.path();
    const std::string text = (path / "text.txt").string(), out = (path / name).string();
    test::write_file(text, std::string(3000, 'a'));
    const std::vector<const char*> arguments = {
        "sweep",     "--data",           text.c_str(), "--out",
        out.c_str(), "--backend",        "host",       "--devices",
        "1",         "--model",          "plain",      "--depth",
        "1",         "--n-embd",         "32",         "--n-head",
        "2",         "--max-seq-len",    "32",         "--total-batch-size",
        "64",        "--num-iterations", "2",          "--eval-tokens",
        "64",        "--matrix-lr",      "0.1,0.2",    "--graph-branches",
        "1,3",       "--halving",        "2",          "--min-steps",
        "1",         "--resume",         "auto"};
    const auto options = std::get<trainer::SweepOptions>(cli::parse_command_line(arguments));
    const data::Corpus corpus = data::open_corpus(options.train.data);
    SweepPlan plan = SweepPlanner(options, corpus).plan();
    if (how.memory != nullptr) plan.worker_memory = *how.memory;
    SweepDirectory directory(options, plan, trainer::data_identity(corpus));
    Scheduler scheduler(plan, {.factor = 2, .asynchronous = how.asynchronous},
                        [&](std::size_t trial, std::size_t rung) {
                          return how.promoted ? how.promoted(directory, trial)
                                              : directory.add_promotion(trial, rung);
                        });
    directory.replay(scheduler);
    std::atomic<int> stop = 0, results = 0;
    const auto fail = [&] {
      const test::FullDisk disk(0);
      EXPECT_FALSE(directory.add_promotion(0, 0));
    };
    if (how.fail_at == 0) fail();
    SweepRun sweep(plan, scheduler, directory,
                   {.directory = directory,
                    .corpus = corpus,
                    .stop = stop,
                    .ended = [&](std::size_t, const TrialResult&) {
                      if (++results == how.fail_at) fail();
                    }});
    std::atomic<bool> working = true;
    std::jthread worker([&] {
      sweep.work(0);
      working = false;
    });
    const auto look = [&] {
      if (const std::string why = directory.failure(); !why.empty()) sweep.fail(why);
      sweep.record_results();
    };
    while (working) {
      look();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    look();
    Outcome outcome{.states = {}, .captures = sweep.captures(), .failure = sweep.failure()};
    for (const TrialStatus& status : scheduler.status())
      outcome.states.push_back(status.state);
    return outcome;
  }

  test::TemporaryDirectory directory_;
};

// The worker trains trials of both groups, and returns to at least one of them.
TEST_F(SweepRunTest, GroupsThatDoNotFitTogetherAreCapturedAgain) {
  const Outcome kept = run("kept", {});
  EXPECT_EQ(kept.failure, "");
  EXPECT_EQ(kept.captures, 2);
  EXPECT_EQ(std::ranges::count(kept.states, TrialState::kDone), 2);
  const WorkerMemory none;
  const Outcome alone = run("alone", {.memory = &none});
  EXPECT_GT(alone.captures, 2);
  EXPECT_EQ(alone.states, kept.states);
}

// The lock of a promoted trial is released before another worker may continue it.
TEST_F(SweepRunTest, APromotedTrialIsUnlocked) {
  int promotions = 0;
  run("locks", {.promoted = [&](const SweepDirectory& directory, std::size_t trial) {
        ++promotions;
        EXPECT_NO_THROW((void)trainer::lock_run_directory({directory.trial(trial), {}}));
        return true;
      }});
  EXPECT_EQ(promotions, 2);
}

// Results that are not recorded decide nothing: the sweep ends, and resumes from the journal. In
// asynchronous mode the winners depend on the order of results.
TEST_F(SweepRunTest, EndsIfTheJournalCannotBeWrittenAndResumesFromIt) {
  for (const bool asynchronous : {false, true}) {
    const Outcome whole = run(asynchronous ? "a" : "s", {.asynchronous = asynchronous});
    EXPECT_EQ(std::ranges::count(whole.states, TrialState::kDone), 2);
    for (const int results : {0, 3, 5}) {
      const std::string name = (asynchronous ? "a" : "s") + std::to_string(results);
      const Outcome failed = run(name, {.asynchronous = asynchronous, .fail_at = results});
      EXPECT_THAT(failed.failure, testing::HasSubstr("File too large"));
      EXPECT_LT(std::ranges::count(failed.states, TrialState::kDone), 2);
      const Outcome resumed = run(name, {.asynchronous = asynchronous});
      EXPECT_EQ(resumed.failure, "");
      EXPECT_EQ(std::ranges::count(resumed.states, TrialState::kStopped), 2);
      EXPECT_EQ(std::ranges::count(resumed.states, TrialState::kDone), 2);
      if (!asynchronous) {
        EXPECT_EQ(resumed.states, whole.states);
      }
    }
  }
}

TEST_F(SweepRunTest, AnUnrecordedPromotionDoesNotCount) {
  for (const bool asynchronous : {false, true}) {
    const Outcome outcome =
        run(asynchronous ? "a" : "s",
            {.promoted = [](const SweepDirectory&, std::size_t) { return false; },
             .asynchronous = asynchronous});
    EXPECT_EQ(std::ranges::count(outcome.states, TrialState::kDone), 0);
    EXPECT_GT(std::ranges::count(outcome.states, TrialState::kPaused), 0);
  }
}

TEST(SweepDirectory, ListsEachTrialWithAllItsTokens) {
  const test::TemporaryDirectory directory;
  const std::string text = (directory.path() / "text.txt").string();
  const std::string out = (directory.path() / "sweep").string();
  test::write_file(text, std::string(3000, 'a'));
  const auto options = std::get<trainer::SweepOptions>(test::parse(test::words_of(
      "sweep --data " + text + " --out " + out +
      " --backend host --devices 2 --devices-per-trial 2 --model plain --depth 1 --n-embd 32 "
      "--n-head 2,5 --max-seq-len 32 --device-batch-size 1 --total-batch-size 192 "
      "--num-iterations 9 --eval-tokens 64")));
  const data::Corpus corpus = data::open_corpus(options.train.data);
  const SweepPlan plan = SweepPlanner(options, corpus).plan();
  std::vector<TrialStatus> status(2);
  status[0] = {.state = TrialState::kDone,
               .last = {.step = 9, .val_loss = 2.5, .val_bpb = 3.5, .best = 3.25, .seconds = 1.5},
               .step = 9};
  status[1] = {.state = TrialState::kRefused, .message = "because, of \"5\""};
  const SweepDirectory sweep(options, plan, trainer::data_identity(corpus));
  std::string holder;  // `sweep` excludes other sweeps while it exists
  EXPECT_FALSE(FileLock::try_file(out + "/run.lock", holder));
  EXPECT_NE(holder, "");
  sweep.write_table(plan, status);
  // Two devices, each with 3 micro-steps of one row of 32 tokens.
  EXPECT_EQ(test::read_file(out + "/sweep.csv"),
            "trial,state,n-head,step,tokens,val_loss,val_bpb,best,seconds,message,directory\n"
            "0,done,2,9,1728,2.5,3.5,3.25,1.500,,trials/0000\n"
            "1,refused,5,0,0,,,,0.000,\"because, of \"\"5\"\"\",trials/0001\n");
}

SweepPlan planned(const std::string& more) {
  const test::TemporaryDirectory directory;
  const std::string text = (directory.path() / "text.txt").string();
  test::write_file(text, std::string(3000, 'a'));
  const auto options = std::get<trainer::SweepOptions>(test::parse(test::words_of(
      "sweep --data " + text +
      " --backend host --model plain --depth 1 --n-embd 32 --n-head 2 --max-seq-len 32 "
      "--total-batch-size 64 --eval-tokens 64 --matrix-lr 0.1,0.2,0.3 " +
      more)));
  return SweepPlanner(options, data::open_corpus(options.train.data)).plan();
}

TEST(SweepPlanner, PutsTheFirstRungBeyondTheWarmUp) {
  const auto plan = [](const std::string& more) {
    return planned("--devices 1 --num-iterations 270 --halving 3 --warmup-steps " + more);
  };
  using testing::ElementsAre;
  EXPECT_THAT(plan("5").rungs, ElementsAre(10, 30, 90, 270));
  const SweepPlan beyond = plan("10,20");
  EXPECT_THAT(beyond.rungs, ElementsAre(40, 120, 270));
  EXPECT_EQ(beyond.warning, "");
  EXPECT_EQ(plan("20 --min-steps 20").warning,
            "warning: the first halving, after step 20, is within the 20 steps of warm-up, where "
            "losses are mostly noise: give fewer --warmup-steps, or --min-steps 40 or more");
  const SweepPlan no_room = plan("200");
  EXPECT_THAT(no_room.rungs, ElementsAre(10, 30, 90, 270));
  EXPECT_THAT(no_room.warning, testing::EndsWith("noise: give fewer --warmup-steps"));
}

// The time of a trial, in ms, and its rungs.
TEST(SweepPlanner, DividesABudgetAmongTrialsAndRungs) {
  using testing::ElementsAre;
  const std::string budget = "--num-iterations auto --sweep-budget 60 ";
  const auto each = [&](const std::string& more) {
    return length_of(*planned(budget + more).trials[0].config);
  };
  EXPECT_EQ(each("--devices 1"), 20'000);
  EXPECT_EQ(each("--devices 2"), 30'000);
  EXPECT_EQ(each("--devices 1 --seed 1,2"), 10'000);
  // Three trials to a ninth, and one of them to its end: 3/9 + 8/9 of a trial.
  const SweepPlan halved = planned(budget + "--devices 1 --halving 3");
  EXPECT_THAT(halved.rungs, ElementsAre(5'454, 16'363, 49'090));
  // Three points of two trials to an eighth, and one of them to its end: 6/8 + 2 x 7/8.
  const SweepPlan seeds = planned(budget + "--devices 1 --halving 2 --seed 1,2");
  EXPECT_THAT(seeds.rungs, ElementsAre(3'000, 6'000, 12'000, 24'000));
  EXPECT_TRUE(seeds.is_timed);
  EXPECT_EQ(planned(budget + "--devices 1 --halving 2 --seed 1,2 --trials 6").rungs, seeds.rungs);
  EXPECT_THROW(planned(budget + "--devices 1 --time-budget 5m"), InputError);
  EXPECT_THROW(planned(budget + "--devices 1 --halving 2 --min-steps 5"), InputError);
}

}  // namespace
}  // namespace muo::kit
