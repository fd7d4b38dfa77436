#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/command.h"
#include "system/training_run.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// Runs sweeps as a user does.
class Sweep : public Training {
 protected:
  [[nodiscard]] std::string sweep(const std::string& out, const std::string& more) const {
    std::string command = options(out, more + " --eval-every -1");
    return "sweep" + command.substr(command.find(' '));
  }
  // The rows of sweep.csv, by default without the column of times.
  [[nodiscard]] std::vector<std::vector<std::string>> rows(const std::string& out,
                                                           bool with_seconds = false) const {
    std::istringstream file(test::read_file(path(out) / "sweep.csv"));
    std::vector<std::vector<std::string>> table;
    std::ptrdiff_t seconds = 0;
    for (std::string line; std::getline(file, line);) {
      std::vector<std::string>& row = table.emplace_back();
      std::istringstream fields(line);
      for (std::string field; std::getline(fields, field, ',');)
        row.push_back(field);
      if (table.size() == 1) seconds = std::ranges::find(row, "seconds") - row.begin();
      if (!with_seconds) row.erase(row.begin() + seconds);
    }
    return table;
  }
  [[nodiscard]] std::string trial(const std::string& out, int number) const {
    return out + "/trials/000" + std::to_string(number);
  }
};

// Each trial differs from the trial that its device trained before.
TEST_F(Sweep, ATrialIsBitwiseTheSameTrainCommand) {
  const Outcome outcome =
      run_program(sweep("sweep", "--matrix-lr 0.1,0.3 --seed 1,2 --weight-decay 0.1 --devices 2"));
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("captures: 2;"));
  for (int i = 0; i < 4; ++i) {
    const std::string same = "same" + std::to_string(i);
    const Outcome alone =
        run_program("train --config " + (path(trial("sweep", i)) / "config.toml").string() +
                    " --out " + path(same).string());
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_EQ(losses(trial("sweep", i)), losses(same));
    EXPECT_EQ(tensors(trial("sweep", i), 20), tensors(same, 20)) << "trial " << i;
    const Outcome eval = run_program("eval --eval-tokens 640 --devices 1 " + path(same).string());
    EXPECT_EQ(eval.code, 0) << eval.err;
  }
  EXPECT_NE(losses(trial("sweep", 0)), losses(trial("sweep", 1)));
  EXPECT_NE(losses(trial("sweep", 0)), losses(trial("sweep", 2)));
}

// The sizes are those of quick.toml, except that the warm-up is the default of `train`.
TEST_F(Sweep, TheCommandOfTheBestTrialTrainsTheSame) {
  const Outcome outcome =
      run_program("sweep --data " + text_.string() +
                  " --matrix-lr 0.1,0.2 --warmup-steps 40 --max-seq-len 32 "
                  "--total-batch-size 32 --devices 1 --num-iterations 3 --eval-every -1 --out " +
                  path("sweep").string());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::size_t begin = outcome.out.find("to repeat it: ") + 14;
  const std::string command = outcome.out.substr(begin, outcome.out.find('\n', begin) - begin);
  const Outcome again = test::run_command(command + " --out " + path("again").string());
  ASSERT_EQ(again.code, 0) << command << again.err;
  const bool is_first = command.find("--matrix-lr 0.1 ") != std::string::npos;
  EXPECT_EQ(losses("again"), losses(trial("sweep", is_first ? 0 : 1))) << command;
}

TEST_F(Sweep, CapturesOncePerDeviceAndGroup) {
  const Outcome outcome =
      run_program(sweep("sweep", "--depth 1,2 --matrix-lr 0.1,0.2,0.3 --num-iterations 3"));
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out,
              HasSubstr("captures: at most 2 on each of 2 devices, because --depth is part of "
                        "the captured step"));
  EXPECT_THAT(outcome.out, HasSubstr("; 3 steps of 768 tokens"));
  // Each device has its own group, and the device that finishes first may help the other.
  EXPECT_THAT(outcome.out, testing::ContainsRegex("captures: [23];"));
  EXPECT_THAT(rows("sweep"), SizeIs(7));
}

// A rate of almost 0 is surely worse after four fresh seeds. A killed sweep repeats its decisions.
TEST_F(Sweep, FinalsTestTheBestPointsWithFreshSeeds) {
  const std::string more =
      "--matrix-lr 0.3,0.31,1e-4 --embedding-lr 1e-3 --seed 1,2 --finalists 3 --num-iterations 6";
  const Outcome outcome = run_program(sweep("sweep", more));
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("finals: after 4 fresh seeds, trial "));
  EXPECT_THAT(outcome.out, HasSubstr("point is worse than another  (matrix-lr 1e-4)"));
  EXPECT_THAT(outcome.out, HasSubstr("fresh seeds, at 95 %: the best is "));
  const std::string journal = test::read_file(path("sweep/sweep.jsonl"));
  EXPECT_THAT(journal, HasSubstr(R"("kind":"final","trial":6,"options":{"matrix-lr":"0.)"));
  EXPECT_THAT(journal, HasSubstr(R"("seed":"3"})"));
  EXPECT_THAT(outcome.out, HasSubstr("captures: one on each of 2 devices"));
  const auto all = rows("sweep");

  // Killed while the first twelve trials of the finals were added.
  const std::size_t next = journal.find(R"({"kind":"final","trial":11,)");
  ASSERT_NE(next, std::string::npos);
  test::write_file(path("sweep/sweep.jsonl"), journal.substr(0, next));
  for (const auto& entry : fs::directory_iterator(path("sweep/trials")))
    if (entry.path().filename() > "0010") fs::remove_all(entry.path());
  const Outcome resumed = run_program("sweep --resume " + path("sweep").string());
  ASSERT_EQ(resumed.code, 0) << resumed.err << resumed.out;
  const auto best_of = [](const std::string& text) { return text.substr(text.find("\nbest: ")); };
  EXPECT_EQ(best_of(resumed.out), best_of(outcome.out));
  EXPECT_EQ(rows("sweep"), all);
  const Outcome grown = run_program("sweep --resume " + path("sweep").string() + " --seed 1,2,3");
  EXPECT_EQ(grown.code, 2);
}

// By muograph compare, and at its own end.
TEST_F(Sweep, ItsPointsAreCompared) {
  const std::string more = "--matrix-lr 0.3,1e-4 --seed 1,2,3 --num-iterations 6";
  const Outcome outcome = run_program(sweep("sweep", more));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("certainty: at 95 %, in pairs of equal seeds, the best is "));
  const Outcome points = run_program("compare " + path("sweep").string());
  EXPECT_THAT(points.out, HasSubstr("seeds  held-out bits/byte  difference  "));
  EXPECT_THAT(points.out, HasSubstr("the others are compared with it"));
  const auto trials = [&](const std::string& numbers) {
    std::string out;
    for (const char number : numbers)
      out += " " + path(trial("sweep", number - '0')).string();
    return out;
  };
  const Outcome sides = run_program("compare --json" + trials("345") + " --with" + trials("012"));
  const auto json = nlohmann::json::parse(sides.out);
  EXPECT_EQ(json["groups"][1]["pairs"], 3);
  EXPECT_EQ(json["unit"], "bits/byte");
  const double difference = json["groups"][1]["difference"];
  EXPECT_NEAR(difference,
              json["groups"][1]["mean"].get<double>() - json["groups"][0]["mean"].get<double>(),
              1e-12);
  const Outcome seeds = run_program("compare" + trials("012"));
  EXPECT_EQ(seeds.code, 2);
  EXPECT_THAT(seeds.err, HasSubstr("all runs have the same options, but for their seeds"));
  test::write_text(path("held.txt"), 90);
  train("other", "--num-iterations 6 --val-data " + path("held.txt").string());
  const Outcome other = run_program("compare" + trials("0") + " " + path("other").string());
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("cannot be compared"));
}

// At the end of the sweep, later by --resume, and on its page.
TEST_F(Sweep, OptimaByDepthPredictThatOfAnother) {
  const Outcome outcome =
      run_program(sweep("sweep", "--depth 1..3 --matrix-lr 0.02,0.08,0.3,3 --num-iterations 6"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(fs::exists(path("sweep/transfer.json")));
  const std::string resume = "sweep --resume " + path("sweep").string();
  const Outcome resumed = run_program(resume + " --transfer-to 6");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("transfer of matrix-lr, optima with 95 % intervals:\n"
                                     "  depth 1: "));
  const auto json = nlohmann::json::parse(test::read_file(path("sweep/transfer.json")));
  EXPECT_EQ(json["target"], 6);
  EXPECT_EQ(json["depths"].size(), 3U);
  EXPECT_EQ(json["unit"], "bits/byte");
  EXPECT_THAT(resumed.out, HasSubstr(json["text"].get<std::string>()));
  test::write_file(path("plotly.js"), "window.Plotly = {};" + std::string(1'000'000, '\n'));
  const Outcome page =
      run_program("report " + path("sweep").string() + " -o " + path("page.html").string() +
                  " --plotly " + path("plotly.js").string());
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_THAT(test::read_file(path("page.html")), HasSubstr("transfer of matrix-lr, optima"));
  const Outcome refused = run_program(sweep("other", "--depth 1,2 --transfer-to 6"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--transfer-to 6: needs three other depths"));
  EXPECT_FALSE(fs::exists(path("other")));
}

// With halving, a device returns to groups that it has captured. Each learning rate gives the same
// result in both groups, so the best trials of both continue.
TEST_F(Sweep, CapturesOncePerDeviceAndGroupWithHalving) {
  const std::string more =
      "--graph-branches 1,3 --matrix-lr 0.05..0.3/6 --devices 1 --num-iterations 27 --halving 3 "
      "--min-steps 3";
  const Outcome outcome = run_program(sweep("sweep", more));
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("captures: 2;"));
  std::vector<std::string> went_on;  // groups of the trials that reached the second rung
  std::string whole;                 // the trial that completed
  const auto table = rows("sweep");
  const auto value = [&](std::size_t row, const std::string& name) {
    return table[row]
                [static_cast<std::size_t>(std::ranges::find(table[0], name) - table[0].begin())];
  };
  for (std::size_t i = 1; i < table.size(); ++i) {
    if (value(i, "step") != "3") went_on.push_back(value(i, "graph-branches"));
    if (value(i, "state") == "done") whole = "sweep/" + value(i, "directory");
  }
  EXPECT_THAT(went_on, testing::UnorderedElementsAre("1", "1", "3", "3"));
  const Outcome alone = run_program("train --config " + (path(whole) / "config.toml").string() +
                                    " --out " + path("same").string());
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(tensors(whole, 27), tensors("same", 27));
}

TEST_F(Sweep, TwoDevicesPerTrialAreTwoRanks) {
  const Outcome outcome =
      run_program(sweep("sweep", "--devices-per-trial 2 --matrix-lr 0.1,0.2 --num-iterations 4"));
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("captures: 1;"));
  train("same", "--devices 2 --matrix-lr 0.2 --num-iterations 4");
  EXPECT_EQ(tensors(trial("sweep", 1), 4), tensors("same", 4));
}

// The device code of the plug-in is executed as well (tests/stand_ins). The graphs of both groups
// are kept.
TEST_F(Sweep, ADeviceReplaysTheGraphsOfTheTrialsBefore) {
  const std::string simt = "MUO_CUDA_PLUGIN=muograph_simt";
  const std::string more =
      "--num-iterations 3 --total-batch-size 128 --backend cuda --devices 1 --dtype fp32 ";
  const Outcome outcome = run_program(
      sweep("sweep", more + "--matrix-lr 0.1,0.3 --graph-branches 1,3 --halving 2 --min-steps 2"),
      simt);
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("captures: 2;"));
  const Outcome alone =
      run_program(options("same", more + "--matrix-lr 0.3 --eval-every -1"), simt);
  ASSERT_EQ(alone.code, 0) << alone.err;
  for (const int number : {2, 3})
    EXPECT_EQ(tensors(trial("sweep", number), 3), tensors("same", 3));
}

TEST_F(Sweep, ADeviceTrainsTwoTrialsAtOnce) {
  const std::string simt = "MUO_CUDA_PLUGIN=muograph_simt";
  const std::string more =
      "--num-iterations 3 --total-batch-size 128 --backend cuda --devices 1 --dtype fp32 ";
  const Outcome outcome =
      run_program(sweep("sweep", more + "--trials-per-device 2 --matrix-lr 0.1,0.2,0.3"), simt);
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("captures: 2;"));
  for (const int number : {0, 1, 2}) {
    const std::string alone = "alone" + std::to_string(number);
    const std::string rate = "--matrix-lr 0." + std::to_string(number + 1);
    ASSERT_EQ(run_program(options(alone, more + rate + " --eval-every -1"), simt).code, 0);
    EXPECT_EQ(tensors(trial("sweep", number), 3), tensors(alone, 3)) << number;
  }
}

// A trial's result does not depend on the device that trains it.
TEST_F(Sweep, TwoDevicesGiveTheTableOfOne) {
  const std::string more =
      "--matrix-lr 0.05..0.4/8 --num-iterations 32 --halving 2 --min-steps 1 --devices ";
  for (const std::string devices : {"1", "2"}) {
    const Outcome outcome = run_program(sweep(devices, more + devices));
    ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  }
  EXPECT_THAT(rows("1"), SizeIs(9));
  EXPECT_EQ(rows("2"), rows("1"));
}

TEST_F(Sweep, GivesTheSameTableIfKilledAndResumed) {
  for (const std::string mode : {"off", "on"}) {
    const std::string more =
        "--matrix-lr log:0.05..0.5 --seed 1,2 --trials 12 --halving 3 --min-steps 4 --devices 1 "
        "--num-iterations 36 --resume auto --asynchronous " +
        mode;
    const std::string whole = "whole_" + mode, killed = "killed_" + mode;
    const Outcome want = run_program(sweep(whole, more));
    ASSERT_EQ(want.code, 0) << want.err;
    int kills = 0;
    for (;; ++kills) {
      const std::string delay = std::to_string(150 + 61 * kills % 400);
      const Outcome outcome = run_program(
          sweep(killed, more) +
          (kills < 8 ? " & pid=$!; sleep 0." + delay + "; kill -KILL $pid; wait $pid" : ""));
      ASSERT_TRUE(outcome.code == 137 || outcome.code == 0) << outcome.code << outcome.err;
      if (outcome.code == 0) break;
    }
    EXPECT_EQ(rows(killed), rows(whole)) << mode;
    EXPECT_THAT(rows(whole), SizeIs(13));
    // A completed sweep does nothing more.
    const Outcome again = run_program("sweep --resume " + path(killed).string());
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("captures: 0;"));
  }
}

TEST_F(Sweep, AnInterruptSavesAndTheSweepResumes) {
  const std::string more = "--matrix-lr 0.1,0.3 --num-iterations 4000 --devices 1 ";
  const std::string first = path(trial("sweep", 0)).string();
  const auto until_step = [&](std::int64_t step) {
    return test::until(concat("grep -qs '\"step\":", step, ",' ", first, "/metrics.jsonl"));
  };
  const Outcome stopped = run_program(sweep("sweep", more) + " & pid=$!; " + until_step(20) +
                                      "kill -INT $pid; wait $pid");
  EXPECT_EQ(stopped.code, 130) << stopped.err << stopped.out;
  EXPECT_THAT(stopped.out, AllOf(HasSubstr("SIGINT: stopping, with a checkpoint of each trial"),
                                 HasSubstr("muograph sweep --resume")));
  const std::vector<trainer::FoundCheckpoint> saved = trainer::find_checkpoints(first);
  ASSERT_THAT(saved, SizeIs(1));
  EXPECT_GT(saved[0].step, 20);
  EXPECT_LT(saved[0].step, 4000);
  EXPECT_FALSE(fs::exists(path(trial("sweep", 1)) / "checkpoints/step_00000000"));
  // Each process adds to the trial's steps and seconds.
  const auto step_and_seconds = [&] {
    const auto table = rows("sweep", true);
    const auto number = [&](const char* column) {
      const auto at = std::ranges::find(table[0], column) - table[0].begin();
      return std::stod(table[1][static_cast<std::size_t>(at)]);
    };
    return std::pair(number("step"), number("seconds"));
  };
  const auto before = step_and_seconds();
  EXPECT_EQ(before.first, saved[0].step);
  EXPECT_GT(before.second, 0);
  ASSERT_EQ(run_program("sweep --resume " + path("sweep").string() + " & pid=$!; " +
                        until_step(saved[0].step + 100) + "kill -INT $pid; wait $pid")
                .code,
            130);
  const auto after = step_and_seconds();
  EXPECT_GT(after.first, before.first);
  EXPECT_GT(after.second, before.second);
}

// Trials are identified by their options: completed trials keep their number and result, wherever
// they are in the grid now, and the sweep resumes without its values being given again.
TEST_F(Sweep, AGridMayGetValuesOnResume) {
  const std::string more = "--seed 1,2 --num-iterations 3 --devices 1 ";
  const std::string resume = "sweep --resume " + path("sweep").string();
  ASSERT_EQ(run_program(sweep("sweep", more + "--weight-decay 0,0.1 --matrix-lr 0.1,0.3")).code, 0);
  const auto before = rows("sweep", true);
  const Outcome outcome = run_program(resume + " --matrix-lr 0.05,0.1,0.3");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto after = rows("sweep", true);
  ASSERT_THAT(after, SizeIs(13));
  EXPECT_TRUE(std::ranges::equal(before, std::span(after).first(before.size())));
  const auto lr = std::ranges::find(after[0], "matrix-lr") - after[0].begin();
  for (std::size_t i = before.size(); i < after.size(); ++i) {
    EXPECT_EQ(after[i][1], "done");
    EXPECT_EQ(after[i][static_cast<std::size_t>(lr)], "0.05");
  }
  ASSERT_EQ(run_program(resume + " --seed 1..3").code, 0);
  EXPECT_THAT(run_program(resume).out, HasSubstr("  4,5,16  "));
  EXPECT_THAT(rows("sweep"), SizeIs(19));
  const Outcome fewer = run_program(resume + " --matrix-lr 0.1,0.3");
  EXPECT_EQ(fewer.code, 2);
  EXPECT_THAT(fewer.err, HasSubstr("has matrix-lr 0.05,0.1,0.3, now 0.1,0.3"));
  const std::string halving = "--num-iterations 6 --halving 2 --min-steps 5 ";
  ASSERT_EQ(run_program(sweep("halved", halving + "--matrix-lr 0.1,0.3")).code, 0);
  const Outcome halved =
      run_program("sweep --resume " + path("halved").string() + " --matrix-lr 0.1,0.3,0.5");
  EXPECT_EQ(halved.code, 2);
  EXPECT_THAT(halved.err, HasSubstr("has matrix-lr 0.1,0.3, now 0.1,0.3,0.5"));
}

TEST_F(Sweep, RefusedAndDivergedTrialsAreRows) {
  // A threshold that many steps exceed once there are enough steps for comparison.
  const Outcome outcome =
      run_program(sweep("sweep",
                        "--n-head 2,5 --outlier-deviations 8,0.5 --on-outlier skip "
                        "--max-skipped 2 --num-iterations 160 --matrix-lr 0.02"));
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const auto table = rows("sweep");
  ASSERT_THAT(table, SizeIs(5));
  std::vector<std::string> states;
  for (std::size_t i = 1; i < table.size(); ++i)
    states.push_back(table[i][1]);
  EXPECT_THAT(states, ElementsAre("done", "diverged", "refused", "refused"));
  EXPECT_THAT(test::read_file(path("sweep") / "sweep.csv"),
              AllOf(HasSubstr("updates skipped"), HasSubstr("does not divide into --n-head 5")));
  const Outcome none = run_program(sweep("none", "--n-head 5,7"));
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("every trial is refused: --n-embd 32 does not divide"));
  EXPECT_FALSE(fs::exists(path("none")));
  const Outcome tuned = run_program(sweep("tuned", "--tune now --matrix-lr 0.1,0.2"));
  EXPECT_EQ(tuned.code, 2);
  EXPECT_THAT(tuned.err, HasSubstr("--tune now: not supported by sweeps: give --gemm-table FILE"));
}

// A file size limit takes the place of a full disk.
TEST_F(Sweep, ATrialThatCannotBeSavedEndsItAndIsTriedAgain) {
  const std::string options = "--n-embd 32,256 --n-head 2 --num-iterations 2 --devices 1";
  const Outcome full = run_program(sweep("sweep", options), "ulimit -f 800;");
  EXPECT_EQ(full.code, 3);
  EXPECT_THAT(full.err, AllOf(HasSubstr("trial 1: checkpoint of step 2 not saved: cannot reserve"),
                              HasSubstr("sweep --resume " + path("sweep").string())));
  EXPECT_EQ(rows("sweep")[1][1], "done");
  ASSERT_EQ(run_program("sweep --resume " + path("sweep").string()).code, 0);
  const auto table = rows("sweep");
  ASSERT_THAT(table, SizeIs(3));
  EXPECT_EQ(table[1][1], "done");
  EXPECT_EQ(table[2][1], "done");
}

TEST_F(Sweep, ResumingAnotherSweepIsRejected) {
  ASSERT_EQ(run_program(sweep("sweep", "--matrix-lr 0.1,0.2 --num-iterations 2")).code, 0);
  const auto error = [&](const std::string& more) {
    const Outcome outcome = run_program(sweep("sweep", more));
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(error("--matrix-lr 0.1,0.2 --num-iterations 2"), HasSubstr("holds a sweep already"));
  EXPECT_THAT(error("--matrix-lr 0.1,0.3 --num-iterations 2 --resume auto"),
              HasSubstr("has matrix-lr 0.1,0.2, now 0.1,0.3"));
  // Changes the file that --resume reads.
  const fs::path file = path("sweep") / "sweep.toml";
  std::string text = test::read_file(file);
  const std::string line = "num-iterations = 2";
  ASSERT_NE(text.find(line), std::string::npos);
  test::write_file(file, text.replace(text.find(line), line.size(), "num-iterations = 3"));
  const Outcome changed = run_program("sweep --resume " + path("sweep").string());
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.err, HasSubstr("has num-iterations 2, now 3"));
  for (const char* journal : {"[]\n", "{\"format\":1}\n", "{\"format\":1,\"options\":3}\n"}) {
    test::write_file(path("sweep") / "sweep.jsonl", journal);
    const Outcome forged = run_program("sweep --resume " + path("sweep").string());
    EXPECT_EQ(forged.code, 2) << journal;
    EXPECT_THAT(forged.err, HasSubstr("sweep.jsonl: not the journal of a sweep: "));
  }
  test::write_file(file, "");
  const Outcome damaged = run_program("sweep --resume " + path("sweep").string());
  EXPECT_EQ(damaged.code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("sweep.toml is empty, so it is damaged"));
}

}  // namespace
}  // namespace muo
