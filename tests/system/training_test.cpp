#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/command.h"
#include "support/drawn.h"
#include "support/files.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "system/training_run.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::run_program;
using testing::HasSubstr;

TEST_F(Training, LeavesARunDirectoryThatOtherCommandsUse) {
  const Outcome outcome = train("run", "--norms-every 6");
  EXPECT_THAT(outcome.out, HasSubstr("step 20/20"));
  EXPECT_THAT(outcome.out, HasSubstr("run directory: " + path("run").string()));

  const std::vector<json> steps = metrics("run", "train");
  ASSERT_EQ(steps.size(), 20U);
  EXPECT_EQ(steps[0]["step"], 0);
  EXPECT_NEAR(steps[0]["loss"].get<double>(), std::log(257.0), 0.01);
  EXPECT_LT(steps[19]["loss"].get<double>(), 0.8 * steps[0]["loss"].get<double>());
  const std::vector<json> evals = metrics("run", "eval");
  ASSERT_EQ(evals.size(), 3U);  // at steps 0, 10 and 20
  EXPECT_EQ(evals[2]["step"], 20);
  const auto steps_of = [&](const std::string& kind) {
    std::vector<std::int64_t> out;
    for (const json& record : metrics("run", kind))
      out.push_back(record["step"]);
    return out;
  };
  EXPECT_EQ(steps_of("update"), steps_of("train"));
  EXPECT_THAT(steps_of("matrices"), testing::ElementsAre(0, 6, 12, 18, 19));

  const std::string run = path("run").string();
  const Outcome eval = run_program("eval --checkpoint " + run + " --eval-tokens 640");
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr("val_bpb"));
  const Outcome sample =
      run_program("sample --checkpoint " + run + " --prompt line --max-tokens 20");
  EXPECT_EQ(sample.code, 0) << sample.err;
  EXPECT_THAT(sample.out, testing::StartsWith("line"));
  EXPECT_EQ(run_program("sample --checkpoint " + run + " --prompt line --max-tokens 20").out,
            sample.out);
}

// The start prints seven lines; the log has the rest. The commands proposed at the end can be
// pasted.
TEST_F(Training, TheTerminalShowsTheEssentialsAndOutputLogEverything) {
  const Outcome usual = train("run", "--weight-decay-scale 1 --n-embd 256");
  const std::string start = usual.out.substr(0, usual.out.find("step 0:"));
  EXPECT_EQ(std::ranges::count(start, '\n'), 7) << start;
  for (const char* what : {"model: plain, 1 layer of width 256, ", "text: ", "devices: 2 virtual",
                           "step: 768 tokens: 2 x 4 rows of 32, 3 times",
                           "horizon: 20 steps: ", "expected: about ", "run directory: "})
    EXPECT_THAT(start, HasSubstr(what));
  EXPECT_THAT(usual.out, testing::ContainsRegex("held out: [0-9.]+ bits/byte at step 20"));
  const json facts = json::parse(test::read_file(path("run/run.json")));
  EXPECT_THAT(start, HasSubstr(fmt::format("; {:.0f} MiB each\n",
                                           facts["memory_bytes"].get<double>() / 2 / 1048576)));
  EXPECT_THAT(usual.out,
              HasSubstr(fmt::format("step 20: checkpoint saved: {:.1f} MB in ",
                                    static_cast<double>(tensors("run", 20).size()) / 1e6)));
  const std::string log = test::read_file(path("run") / "output.log");
  EXPECT_THAT(log, HasSubstr("learning rates: "));
  EXPECT_THAT(usual.out, testing::Not(HasSubstr("learning rates: ")));
  EXPECT_THAT(train("verbose", "--verbose").out, HasSubstr("learning rates: "));
  const Outcome quiet = train("quiet", "--quiet");
  EXPECT_THAT(quiet.out, testing::StartsWith("warning: weight decay is dangerous"));
  EXPECT_THAT(quiet.out, HasSubstr("\ntrained 20 steps"));
  EXPECT_EQ(std::ranges::count(quiet.out, '\n'), 4) << quiet.out;
  EXPECT_EQ(run_program("train --quiet --verbose --data x").code, 2);

  const auto next = usual.out.find("next:\n  ");
  ASSERT_NE(next, std::string::npos) << usual.out;
  const std::string sample = usual.out.substr(next + 8, usual.out.find('\n', next + 8) - next - 8);
  EXPECT_THAT(sample, HasSubstr("sample "));
  EXPECT_EQ(test::run_command(sample).code, 0) << sample;
}

// At learning rate 0 the 257 tokens stay equally likely, so samples differ only by their seeds, and
// some of the first draws end after a few tokens.
TEST_F(Training, SamplesDifferAndAreDrawnAgainWhereTheirDocumentSoonEnds) {
  train("run",
        "--matrix-lr 0 --embedding-lr 0 --unembedding-lr 0 --sample-every 1 --eval-every -1 "
        "--num-iterations 100 --total-batch-size 256");
  std::set<std::string> texts;
  for (const json& record : metrics("run", "sample")) {
    const auto text = record["text"].get<std::string>();
    EXPECT_GE(text.size(), 20U) << record["step"];
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 100U);
}

TEST_F(Training, EvalGivesTheLossOfTheRun) {
  train("run");
  const double want = metrics("run", "eval").back()["val_loss"];
  for (const char* devices : {"1", "2", "3"}) {
    const Outcome eval = run_program("eval --checkpoint " + path("run").string() +
                                     " --eval-tokens 640 --devices " + devices);
    ASSERT_EQ(eval.code, 0) << eval.err;
    const auto at = eval.out.find("val_loss ");
    ASSERT_NE(at, std::string::npos) << eval.out;
    EXPECT_NEAR(std::stod(eval.out.substr(at + 9)), want, 1e-6) << devices;  // six digits printed
  }
  const Outcome eval = run_program("eval " + path("run").string() + " --eval-tokens 640 --json");
  ASSERT_EQ(eval.code, 0) << eval.err;
  const auto result = nlohmann::json::parse(eval.out);
  EXPECT_NEAR(result["val_loss"], want, 1e-6);
  EXPECT_NEAR(result["val_bpb"], double{metrics("run", "eval").back()["val_bpb"]}, 1e-6);
  EXPECT_EQ(result["tokens"], 640);
  const Outcome rounded =
      run_program("eval " + path("run").string() + " --eval-tokens 640 --json --dtype bf16");
  ASSERT_EQ(rounded.code, 0) << rounded.err;
  const double loss = nlohmann::json::parse(rounded.out)["val_loss"];
  EXPECT_NEAR(loss, want, 0.01 * want);  // bf16 has 8 bits
  EXPECT_NE(loss, result["val_loss"]);
}

TEST_F(Training, EvalOfOtherDataUsesAllOfIt) {
  train("run");
  const std::string eval = "eval --checkpoint " + path("run").string() + " --data ";
  const Outcome whole = run_program(eval + text_.string());
  ASSERT_EQ(whole.code, 0) << whole.err;
  // Every byte and the start of the document.
  EXPECT_THAT(whole.out,
              HasSubstr("text: " + std::to_string(fs::file_size(text_) + 1) + " tokens"));
  EXPECT_THAT(whole.out, HasSubstr("val_bpb"));
}

TEST_F(Training, TheSameCommandTwiceIsBitwiseEqualAndSoIsEagerWork) {
  train("a");
  train("b");
  train("c", "--graph off");
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(losses("a"), losses("c"));
  EXPECT_EQ(tensors("a", 20), tensors("b", 20));
  EXPECT_EQ(tensors("a", 20), tensors("c", 20));
  train("d", "--seed 43");
  EXPECT_NE(tensors("a", 20), tensors("d", 20));
}

TEST_F(Training, AResumedRunIsBitwiseTheRunThatWasNotInterrupted) {
  train("whole", "--save-every 7");
  const std::string checkpoint = trainer::checkpoint_directory(path("whole"), 7).string();
  const Outcome outcome = train("part", "--resume " + checkpoint);
  EXPECT_THAT(outcome.out, HasSubstr("at step 7"));
  EXPECT_EQ(metrics("part", "train").front()["step"], 7);
  EXPECT_EQ(tensors("whole", 20), tensors("part", 20));
  const std::vector<double> whole = losses("whole");
  EXPECT_EQ(std::vector<double>(whole.begin() + 7, whole.end()), losses("part"));
  const std::vector<json> updates = metrics("whole", "update");
  ASSERT_EQ(updates.size(), 20U);
  for (std::size_t step = 0; step < updates.size(); ++step) {
    EXPECT_EQ(updates[step]["step"], step);
    EXPECT_GT(updates[step]["matrices_ratio"], 0.0);
  }
  EXPECT_EQ(std::vector<json>(updates.begin() + 7, updates.end()), metrics("part", "update"));
  EXPECT_EQ(metrics("whole", "matrices").back(), metrics("part", "matrices").back());
}

// Masters are saved and replicas are made from them, so rounding leaves no trace in a resumed run.
TEST_F(Training, ANanochatRunInBf16IsBitwiseTheSameEagerAndResumed) {
  const std::string narrow =
      "--model nanochat --depth 2 --verify-sync-every 5 --dtype bf16 --gradient-wire bf16 "
      "--embedding-state bf16 ";
  train("whole", narrow + "--save-every 7");
  const std::string checkpoint = trainer::checkpoint_directory(path("whole"), 7).string();
  train("part", narrow + "--resume " + checkpoint);
  train("eager", narrow + "--graph off");
  EXPECT_EQ(tensors("whole", 20), tensors("part", 20));
  EXPECT_EQ(tensors("whole", 20), tensors("eager", 20));
  EXPECT_EQ(metrics("whole", "update"), metrics("eager", "update"));
  const std::vector<double> whole = losses("whole");
  EXPECT_EQ(whole, losses("eager"));
  EXPECT_LT(whole.back(), whole.front() - 0.5);
}

TEST_F(Training, OlderOptimizersTrainAndResumeAsThemselves) {
  std::vector<std::string> weights;
  for (const std::string spec : {"head", "2026-01", "2025-10"}) {
    const std::string version = "--optimizer-spec " + spec + " ";
    const std::string save = "--devices 3 --total-batch-size 384 --save-every 7 ";
    train("whole" + spec, version + save);
    const std::string checkpoint = trainer::checkpoint_directory(path("whole" + spec), 7).string();
    train("part" + spec, concat(version, save, "--resume ", checkpoint));
    weights.push_back(tensors("whole" + spec, 20));
    EXPECT_EQ(weights.back(), tensors("part" + spec, 20)) << spec;
    EXPECT_LT(losses("whole" + spec).back(), 0.8 * losses("whole" + spec).front()) << spec;
    const Outcome other =
        run_program(options("other", "--resume " + checkpoint + " --optimizer-spec " +
                                         (spec == "head" ? "2026-01" : "head")));
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("was trained with --optimizer-spec " + spec));
  }
  EXPECT_NE(weights[0], weights[1]);
  EXPECT_NE(weights[1], weights[2]);
}

std::string first_sample(const Outcome& outcome) {
  const std::string rest = outcome.out.substr(outcome.out.find(": sample\n"));
  return rest.substr(0, rest.find("\nstep "));
}

// bf16 state is saved as bf16, and split masters as the fp32 numbers that they represent, with any
// sharding.
TEST_F(Training, ALeanRunIsBitwiseTheSameEagerResumedAndOfAnotherStrategy) {
  const std::string lean =
      "--model nanochat --depth 2 --verify-sync-every 5 --dtype bf16 --momentum-state bf16 "
      "--adam-state bf16 --master-weights split ";
  train("whole", lean + "--save-every 7");
  const std::string checkpoint = trainer::checkpoint_directory(path("whole"), 7).string();
  train("part", lean + "--resume " + checkpoint);
  train("eager", lean + "--graph off");
  train("stacked", lean + "--strategy stacked --replicas own --resume " + checkpoint);
  for (const char* other : {"part", "eager", "stacked"})
    EXPECT_TRUE(tensors("whole", 20) == tensors(other, 20)) << other;
  // fp32 masters continue from the same numbers.
  const Outcome wide =
      train("wide",
            "--model nanochat --depth 2 --dtype bf16 --momentum-state fp32 --adam-state fp32 "
            "--master-weights fp32 --resume " +
                checkpoint);
  EXPECT_THAT(wide.out, HasSubstr("master-weights split, now fp32; momentum-state bf16, now fp32"));
  EXPECT_EQ(losses("wide").front(), losses("part").front());
  EXPECT_FALSE(tensors("whole", 20) == tensors("wide", 20));
}

// Anything that reads weights between steps sees those of the last step.
TEST_F(Training, APipelinedGatherIsBitwiseTheSimpleOne) {
  for (const std::string& how :
       {std::string("--devices 3 --device-batch-size 8"),
        std::string("--devices 2 --model nanochat --depth 2 --dtype bf16 --graph off")}) {
    const std::string run =
        how + " --eval-every 4 --sample-every 6 --save-every 7 --verify-sync-every 5 --gather ";
    const std::string late = "pipelined" + how.substr(10, 1);
    const std::string once = "simple" + how.substr(10, 1);
    const Outcome outcome = train(late, run + "pipelined");
    EXPECT_EQ(first_sample(outcome), first_sample(train(once, run + "simple")));
    EXPECT_EQ(losses(late), losses(once));
    ASSERT_EQ(metrics(late, "eval").size(), 6U);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(metrics(late, "eval")[i]["val_loss"], metrics(once, "eval")[i]["val_loss"]) << i;
    for (const std::int64_t step : {7, 14, 20})
      EXPECT_EQ(tensors(late, step), tensors(once, step)) << step;
    train("resumed" + late,
          run + "pipelined --resume " + trainer::checkpoint_directory(path(once), 7).string());
    EXPECT_EQ(tensors("resumed" + late, 20), tensors(once, 20));
    EXPECT_THAT(test::read_file(path(late) / "config.toml"), HasSubstr("gather = \"pipelined\""));
    EXPECT_THAT(test::read_file(path(once) / "config.toml"), HasSubstr("gather = \"simple\""));
  }
}

TEST_F(Training, AnotherWorldAndStrategyResumesWithTheSameWeights) {
  train("whole", "--save-every 7");
  const std::string checkpoint = trainer::checkpoint_directory(path("whole"), 7).string();
  for (const char* other : {"--devices 1", "--devices 3 --strategy ddp --device-batch-size 8",
                            "--devices 4 --strategy stacked --device-batch-size 2"}) {
    const std::string out = "other" + std::to_string(other[10]);
    train(out, std::string(other) + " --resume " + checkpoint);
    // The loss of the first step is computed from the restored weights: a sum over 768 tokens in
    // another order.
    EXPECT_NEAR(losses(out).front(), losses("whole").at(7), 768 * 0x1p-24 * losses("whole").at(7))
        << other;
    EXPECT_NEAR(losses(out).back(), losses("whole").back(), 0.02) << other;
  }
}

TEST_F(Training, WritesItsGraphsForGraphviz) {
  const std::string file = path("step.dot").string();
  train("one", "--num-iterations 1 --graph-dot " + file);
  const std::string dot = test::read_file(file);
  for (const char* text : {"digraph", "reduce_scatter #", "all_gather #", "rms_norm", " -> "})
    EXPECT_THAT(dot, HasSubstr(text));
  train(
      "three",
      "--num-iterations 1 --device-batch-size 1 --graph-micro-steps unrolled --graph-dot " + file);
  for (const char* part : {".0", ".1"})
    EXPECT_THAT(test::read_file(file + part), HasSubstr("digraph"));
  train("loop", "--num-iterations 1 --device-batch-size 1 --graph-dot " + file);
  EXPECT_THAT(test::read_file(file), HasSubstr("next pass"));
  const Outcome nowhere = run_program(options("no", "--graph-dot /nowhere/step.dot"));
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--graph-dot: cannot write to /nowhere/step.dot"));
  EXPECT_EQ(run_program(options("off", "--graph off --graph-dot " + file)).code, 2);
}

TEST_F(Training, ResumeAutoTakesTheNewestCheckpointThatIsWhole) {
  train("run", "--save-every 5");
  const std::string want = tensors("run", 20);
  fs::remove_all(trainer::checkpoint_directory(path("run"), 20));
  // Damage one byte of a weight in the newest remaining checkpoint.
  const fs::path damaged = trainer::checkpoint_directory(path("run"), 15) / "model.safetensors";
  std::string bytes = test::read_file(damaged);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  test::write_file(damaged, bytes);
  const Outcome outcome = train("run", "--save-every 5 --resume auto");
  EXPECT_THAT(outcome.out, HasSubstr("step_00000015"));
  EXPECT_THAT(outcome.out, HasSubstr("at step 10"));
  EXPECT_EQ(tensors("run", 20), want);
  EXPECT_EQ(losses("run").size(), 20U) << "metrics of repeated steps are replaced";
}

TEST_F(Training, ASignalSavesAndTheRunResumesBitwise) {
  constexpr int kSteps = test::kSanitized ? 150 : 600;
  const std::string same = fmt::format("--num-iterations {} --eval-every -1 --devices 1", kSteps);
  train("whole", same);
  // The shell starts the run, waits for the first steps, and sends the signal.
  const Outcome stopped =
      run_program(options("part", same) + " & pid=$!; " +
                  test::until("[ -s " + (path("part") / "metrics.jsonl").string() + " ]") +
                  "kill -TERM $pid; wait $pid");
  ASSERT_EQ(stopped.code, 143) << stopped.err;
  const Outcome again = train("part", same + " --resume auto");
  EXPECT_THAT(again.out, HasSubstr("resuming from"));
  EXPECT_EQ(tensors("whole", kSteps), tensors("part", kSteps));
}

TEST_F(Training, AFailureOfARunIsExitThreeWithItsCauseAndKeepsWhatWasWritten) {
  const fs::path run = path("run");
  const std::string checkpoints = (run / "checkpoints").string();
  const Outcome outcome = run_program(
      options("run", "--num-iterations 100000 --save-every 20 --eval-every -1") + " & pid=$!; " +
      test::until("[ -d " + trainer::checkpoint_directory(run, 20).string() + " ]") +
      test::while_stopped("mv " + checkpoints + " " + path("saved").string() + "; touch " +
                          checkpoints) +
      "wait $pid");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, testing::StartsWith("muograph: error: "));
  EXPECT_THAT(outcome.err, HasSubstr("checkpoints"));
  EXPECT_GE(losses("run").size(), 20U);
  EXPECT_NO_THROW(trainer::Checkpoint(path("saved") / "step_00000020"));
}

TEST_F(Training, ImpossibleRunsAreRefusedBeforeAnyWork) {
  const auto refused = [&](const std::string& more, const std::string& text) {
    const Outcome outcome = run_program(options("refused", more));
    EXPECT_EQ(outcome.code, 2) << more << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text)) << more;
    EXPECT_FALSE(fs::exists(path("refused"))) << more;
  };
  refused("--n-embd 65536 --n-head 256", "GiB");
  refused("--total-batch-size 700", "--total-batch-size 700");
  refused("--n-head 3", "--n-head");
  refused("--strategy zero", "balanced");
  refused("--master-weights split", "--dtype bf16");
  refused("--adam-state bf16 --embedding-state bf16", "give only one of the two options");
  refused("--max-seq-len 100000", "shorter than a row");
  refused("--resume " + path("nowhere").string(), "nowhere");
}

// `train` runs every combination of extras, in shapes with different memory plans.
TEST_F(Training, EveryCombinationOfExtrasTrainsAStep) {
  test::Drawn drawn(8);
  for (const std::string shape :
       {"--depth 3 --n-embd 48 --n-head 4 --max-seq-len 160 --device-batch-size 2",
        "--depth 2 --n-embd 32 --n-head 2 --max-seq-len 64 --device-batch-size 1 --dtype bf16"})
    for (unsigned extras = 0; extras < 32; ++extras) {
      std::string more = shape +
                         " --model nanochat --devices 1 --num-iterations 1 --eval-every -1 "
                         "--total-batch-size 320 --warmup-steps 0";
      const std::array names = {"value-embeddings", "smear", "backout", "resid-lambdas",
                                "x0-lambdas"};
      for (std::size_t i = 0; i < names.size(); ++i)
        more += concat(" --", names[i], (extras >> i & 1) != 0 ? " on" : " off");
      // Without value embeddings and scales of the residual stream, dz and x share memory.
      if (!drawn.runs_next(extras == 0b10110)) continue;
      const Outcome outcome = run_program(options(concat("run", extras), more));
      EXPECT_EQ(outcome.code, 0) << more << outcome.err;
      fs::remove_all(path(concat("run", extras)));
    }
}

TEST_F(Training, NumberFormatsTakeEffectAndMayChangeOnResume) {
  train("fp32", "--save-every 10");
  const std::vector<double> want = losses("fp32");
  const std::string resume = "--resume " + trainer::checkpoint_directory(path("fp32"), 10).string();
  // Logits below the soft-cap of 15 are rounded to 8 bits, and the same error is allowed for the
  // rounding in the layers. The log-sum-exp and the target's logit may each differ by that, in
  // opposite directions.
  const double tolerance = 2 * 2 * 15 * 0x1p-9;
  std::size_t run = 0;
  for (const char* formats :
       {"--dtype bf16", "--gradient-wire bf16", "--weight-wire bf16", "--embedding-state bf16",
        "--dtype bf16 --gradient-wire bf16 --embedding-state bf16", "--momentum-state bf16",
        "--adam-state bf16", "--dtype bf16 --master-weights split",
        "--dtype bf16 --gradient-dtype bf16 --device-batch-size 12"}) {
    const std::string out = "other" + std::to_string(run++);
    train(out, std::string(formats) + " " + resume);
    const std::vector<double> is = losses(out);
    ASSERT_EQ(is.size(), 10U) << formats;
    EXPECT_NEAR(is.front(), want.at(10), tolerance) << formats;
    EXPECT_NE(is, std::vector<double>(want.begin() + 10, want.end())) << formats;
    EXPECT_LT(is.back(), is.front()) << formats;
  }
  // And back to the default formats.
  train("back", "--num-iterations 25 --resume " +
                    trainer::checkpoint_directory(path("other4"), 20).string());
  const Outcome eval = run_program("eval --checkpoint " + path("other4").string() +
                                   " --eval-tokens 640 --dtype fp32");
  EXPECT_EQ(eval.code, 0) << eval.err;
}

TEST_F(Training, ACheckpointOfAnotherModelIsRefusedWithTheDifference) {
  train("run", "--save-every 10");
  const Outcome outcome = run_program(options(
      "other", "--n-embd 64 --resume " + trainer::checkpoint_directory(path("run"), 10).string()));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("n_embd 32, not 64"));
  const Outcome extras = run_program(options(
      "other", "--smear on --resume " + trainer::checkpoint_directory(path("run"), 10).string()));
  EXPECT_EQ(extras.code, 2);
  EXPECT_THAT(extras.err, HasSubstr("smear false, not true"));
}

TEST_F(Training, AFinishedRunIsNotOverwrittenAndNotResumed) {
  train("run");
  const Outcome again = run_program(options("run"));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("holds a run already"));
  const Outcome resumed = run_program(options("run", "--resume auto"));
  EXPECT_EQ(resumed.code, 2);
  EXPECT_THAT(resumed.err, HasSubstr("nothing is left to train"));
}

}  // namespace
}  // namespace muo
