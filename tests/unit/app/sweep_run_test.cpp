#include "app/sweep/sweep_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "app/checkpoint/model_json.h"
#include "app/cli.h"
#include "base/check.h"
#include "support/files.h"

namespace muo {
namespace {

// Four trials of a tiny model, in two groups by turns, on one device; two of them go on.
class SweepRunTest : public testing::Test {
 protected:
  // The states of its trials and the captures that it took. `promoted` is called before another
  // worker may take the trial.
  struct Outcome {
    std::vector<TrialState> states;
    int captures = 0;
  };
  Outcome run(const std::string& name, const WorkerMemory* memory,
              const std::function<void(const SweepDirectory&, std::size_t trial)>& promoted = {}) {
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
        "1"};
    const auto options = std::get<SweepOptions>(parse_command_line(arguments));
    const Corpus corpus = open_corpus(options.train.data);
    SweepPlan plan = SweepPlanner(options, corpus).plan();
    if (memory != nullptr) plan.worker_memory = *memory;
    SweepDirectory directory(options, plan, data_identity(corpus));
    Scheduler scheduler(plan, {.factor = 2}, [&](std::size_t trial, std::size_t) {
      if (promoted) promoted(directory, trial);
    });
    std::atomic<int> stop = 0;
    SweepRun sweep(plan, scheduler, directory,
                   {.directory = directory, .corpus = corpus, .stop = stop});
    std::atomic<bool> working = true;
    std::jthread worker([&] {
      sweep.work(0);
      working = false;
    });
    while (working) {
      sweep.record_results();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    sweep.record_results();
    EXPECT_EQ(sweep.failure(), "");
    Outcome outcome{.states = {}, .captures = sweep.captures()};
    for (const TrialStatus& status : scheduler.status())
      outcome.states.push_back(status.state);
    return outcome;
  }

  test::TemporaryDirectory directory_;
};

// It trained trials of both groups, and comes back to one at least.
TEST_F(SweepRunTest, WhatDoesNotFitBesideOthersIsCapturedAgain) {
  const Outcome kept = run("kept", nullptr);
  EXPECT_EQ(kept.captures, 2);
  EXPECT_EQ(std::ranges::count(kept.states, TrialState::kDone), 2);
  const WorkerMemory none;
  const Outcome alone = run("alone", &none);
  EXPECT_GT(alone.captures, 2);
  EXPECT_EQ(alone.states, kept.states);
}

// The device that has trained it waits for its next trial, or trains it.
TEST_F(SweepRunTest, ATrialThatGoesOnIsLockedByNobody) {
  int promotions = 0;
  run("locks", nullptr, [&](const SweepDirectory& directory, std::size_t trial) {
    ++promotions;
    EXPECT_NO_THROW((void)lock_run_directory({directory.trial(trial), {}}));
  });
  EXPECT_EQ(promotions, 2);
}

}  // namespace
}  // namespace muo
