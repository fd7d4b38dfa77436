#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "system/training_run.h"

// Resumed runs: across the ends of files and epochs, from weights alone, from the right position.
namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Resume : public Training {
 protected:
  // Writes .bin shards with `counts` tokens and returns their names, as --data takes them.
  [[nodiscard]] std::string shards(const std::string& name,
                                   const std::vector<std::int32_t>& counts) const {
    std::string names;
    for (std::size_t f = 0; f < counts.size(); ++f) {
      std::vector<std::uint16_t> tokens;
      for (std::int32_t i = 0; i < counts[f]; ++i)
        tokens.push_back(static_cast<std::uint16_t>((i * i + static_cast<int>(f) * 31) % 251));
      names += shard(name + std::to_string(f) + ".bin", tokens).string() + " ";
    }
    return names;
  }
  void forget_after(const std::string& out, std::int64_t step) const {
    for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path(out)))
      if (found.step > step) fs::remove_all(found.path);
  }
};

// In a resumed run, a sweep and an evaluation, relative paths work from any folder.
TEST_F(Resume, WorksFromAnotherFolder) {
  fs::create_directory(path("there"));
  fs::rename(text_, path("there/text.txt"));
  text_ = "text.txt --val-data held.txt --tokenizer tok.json";
  test::write_text(path("there/held.txt"), 90);
  const std::string there = "cd " + path("there").string() + " &&", elsewhere = "cd / &&";
  const auto run = [](const std::string& arguments, const std::string& folder) {
    const Outcome outcome = run_program(arguments, folder);
    EXPECT_EQ(outcome.code, 0) << arguments << outcome.err;
    return outcome.out;
  };
  run("tokenizer train --data text.txt --vocab-size 300 --out tok.json", there);
  run(options("run", "--num-iterations 2"), there);
  EXPECT_THAT(test::read_file(path("run/config.toml")),
              HasSubstr("text.txt\"]  # given as \"text.txt\"\n"));
  run("train --resume " + path("run").string() + " --num-iterations 3", elsewhere);
  run("eval " + path("run").string() + " --data " + path("there/held.txt").string(), elsewhere);
  run("eval " + path("run").string(), elsewhere);
  std::string sweep = options("sweep", "--num-iterations 2 --matrix-lr 0.1,0.2");
  run(sweep.replace(0, 5, "sweep"), there);
  run("sweep --resume " + path("sweep").string(), elsewhere);
}

// 20 steps of 24 rows use 480 rows of data with 90 rows: more than five epochs over three files.
TEST_F(Resume, IsBitwiseTheSameAcrossFilesAndEpochs) {
  text_ = shards("train", {1000, 700, 1300});
  for (const std::string packing : {"contiguous", "best-fit --bos-token 7"}) {
    const std::string run = packing.substr(0, packing.find(' '));
    const std::string data =
        "--data " + shards("train", {1000, 700, 1300}) + "--val-data " + shards("val", {400, 900}) +
        "--eval-every 5 --save-every 1 --num-iterations 20 --packing " + packing + " ";
    train(run, data);
    const std::string want = tensors(run, 20);
    const std::vector<double> curve = losses(run);
    for (const std::int64_t step : {19, 17, 9, 4, 3}) {
      if (test::kSanitized && step != 17 && step != 4) continue;
      forget_after(run, step);
      const Outcome outcome = train(run, data + "--resume auto");
      EXPECT_THAT(outcome.out, HasSubstr("at step " + std::to_string(step)));
      EXPECT_EQ(losses(run), curve) << run << step;
      EXPECT_TRUE(tensors(run, 20) == want) << run << step;
    }
  }
  EXPECT_NE(losses("best-fit"), losses("contiguous"));
}

// The process that saved the checkpoint ends before it does the work due after the save.
TEST_F(Resume, CatchesUpOnTheSampleAndEvaluationOfItsStep) {
  const std::string more = "--num-iterations 4 --save-every 2 --eval-every 2 --sample-every 2 ";
  const auto forget = [&](const std::string& kind, std::int64_t step) {
    std::string kept;
    for (const json& record : test::metrics_of(path("run")))
      if (record["kind"] != kind || record["step"] != step) kept += record.dump() + '\n';
    test::write_file(path("run/metrics.jsonl"), kept);
  };
  const auto steps_of = [&](const std::string& kind) {
    std::vector<std::int64_t> steps;
    for (const json& record : metrics("run", kind))
      steps.push_back(record["step"]);
    return steps;
  };
  train("run", more);
  const std::vector<std::int64_t> samples = {2, 4}, evaluations = {0, 2, 4};
  ASSERT_EQ(steps_of("sample"), samples);
  const std::vector<json> texts = metrics("run", "sample");
  for (const std::string kind : {"sample", "eval"})
    for (const std::int64_t step : {4, 2}) {
      forget(kind, step);
      forget_after("run", step);
      train("run", more + "--resume auto");
      EXPECT_EQ(steps_of("sample"), samples) << kind << step;
      EXPECT_EQ(steps_of("eval"), evaluations) << kind << step;
      EXPECT_EQ(metrics("run", "sample"), texts);
    }
}

TEST_F(Resume, PackedRowsAreTheSameInEveryWorld) {
  text_ = shards("train", {3000, 2000});
  const std::string data = "--packing best-fit --bos-token 7 --num-iterations 8 --save-every 4 ";
  const Outcome one = train("run", data + "--devices 1");
  EXPECT_THAT(one.out, testing::ContainsRegex("rows of 32, documents packed \\([0-9.]+ % used\\)"));
  const std::vector<double> want = losses("run");
  forget_after("run", 4);
  train("run", data + "--devices 3 --resume auto");
  // With other shards, sums round differently, and updates propagate the difference.
  const std::vector<double> is = losses("run");
  ASSERT_EQ(is.size(), want.size());
  for (std::size_t step = 0; step < want.size(); ++step)
    EXPECT_NEAR(is[step], want[step], 1e-3) << step;

  // The same with attention within documents, which evaluations read from the checkpoint.
  const std::string masked = data + "--document-mask on ";
  EXPECT_THAT(train("masked", masked + "--devices 2").out, HasSubstr("attention within documents"));
  const std::vector<double> masked_losses = losses("masked");
  EXPECT_NE(masked_losses, want);
  forget_after("masked", 4);
  train("masked", masked + "--devices 3 --resume auto");
  for (std::size_t step = 0; step < want.size(); ++step)
    EXPECT_NEAR(losses("masked")[step], masked_losses[step], 1e-3) << step;
  EXPECT_NEAR(
      json::parse(run_program("eval " + path("masked").string() + " --json").out)["val_loss"],
      metrics("masked", "eval").back()["val_loss"].get<double>(), 1e-5);
  const Outcome refused = run_program(options("no", "--document-mask on"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--document-mask on: the token that begins"));

  // Another --packing evaluates rows other than those of the run.
  const std::string eval = "eval " + path("run").string() + " --json";
  const json as_trained = json::parse(run_program(eval).out);
  EXPECT_EQ(as_trained, json::parse(run_program(eval + " --packing best-fit").out));
  const json contiguous = json::parse(run_program(eval + " --packing contiguous").out);
  EXPECT_EQ(contiguous["tokens"], 1999);
  EXPECT_LT(as_trained["tokens"], 1999);
  EXPECT_NE(contiguous["val_loss"], as_trained["val_loss"]);
}

TEST_F(Resume, TheEvaluationSetIsTheSameEveryTimeWhateverTheWorld) {
  text_ = shards("train", {1000, 2000});
  const std::string still =
      "--data " + shards("train", {1000, 2000}) + "--val-data " + shards("val", {400, 900}) +
      "--eval-every 3 --matrix-lr 0 --embedding-lr 0 --unembedding-lr 0 --weight-decay 0 ";
  train("a", still);
  const std::vector<json> evals = metrics("a", "eval");
  ASSERT_EQ(evals.size(), 8U);
  for (const json& eval : evals)
    EXPECT_EQ(eval["val_loss"], evals[0]["val_loss"]);
  train("b", still + "--devices 3");
  EXPECT_NEAR(metrics("b", "eval")[0]["val_loss"].get<double>(), evals[0]["val_loss"].get<double>(),
              1e-5);
}

TEST_F(Resume, InitFromTakesWeightsOnly) {
  train("old");
  const Outcome outcome = train("new", "--devices 3 --init-from " + path("old").string());
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("weights from"), HasSubstr("was at step 20")));
  const json first = metrics("new", "eval").front();
  EXPECT_EQ(first["step"], 0);
  EXPECT_NEAR(first["val_loss"].get<double>(), metrics("old", "eval").back()["val_loss"], 1e-6);
  EXPECT_EQ(metrics("new", "train").size(), 20U);

  // The optimizer state starts from zero, as in a run that starts with the same weights.
  const trainer::Checkpoint checkpoint(path("new"));
  EXPECT_EQ(checkpoint.info().updates, 20);
  const fs::path weights_only = path("exported");
  fs::create_directories(weights_only / "checkpoints");
  fs::copy(trainer::checkpoint_directory(path("old"), 20),
           weights_only / "checkpoints" / "step_00000020");
  fs::remove(weights_only / "checkpoints" / "step_00000020" / "optimizer.safetensors");
  train("again", "--devices 3 --init-from " + weights_only.string());
  EXPECT_TRUE(tensors("again", 20) == tensors("new", 20));

  const auto refused = [&](const std::string& more, const std::string& text) {
    const Outcome other = run_program(options("other", "--init-from " + more));
    EXPECT_EQ(other.code, 2) << more;
    EXPECT_THAT(other.err, HasSubstr(text)) << more;
    EXPECT_FALSE(fs::exists(path("other")));
  };
  refused(path("old").string() + " --n-embd 64", "n_embd 32, not 64");
  refused(path("old").string() + " --resume " + path("old").string(), "give only one of them");
  refused(path("nowhere").string(), "nowhere");
  // With --resume auto an interrupted run continues instead of starting again.
  forget_after("new", 5);
  EXPECT_EQ(run_program(options("new", "--init-from " + path("old").string())).code, 2);
}

TEST_F(Resume, InitFromSetsTheModelAndItsTokenizer) {
  const std::string tokenizer = path("tok.json").string();
  ASSERT_EQ(run_program("tokenizer train --data " + text_.string() + " --vocab-size 300 --out " +
                        tokenizer)
                .code,
            0);
  train("old", "--tokenizer " + tokenizer + " --n-layer 2");
  const std::string begin = "train --data " + text_.string() + " --init-from " +
                            path("old").string() +
                            " --num-iterations 1 --total-batch-size 64 "
                            "--devices 1 --sample-every -1 --eval-tokens 640 --out ";
  const Outcome outcome = run_program(begin + path("new").string());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("model: plain, 2 layers of width 32"));
  EXPECT_NEAR(metrics("new", "eval").front()["val_loss"].get<double>(),
              metrics("old", "eval").back()["val_loss"], 1e-6);
}

TEST_F(Resume, AutoResumesARunInitializedFromWeights) {
  train("old");
  const std::string run = "--save-every 5 --init-from " + path("old").string();
  train("new", run + " --resume auto");
  const std::string want = tensors("new", 20);
  forget_after("new", 10);
  EXPECT_THAT(train("new", run + " --resume auto").out,
              AllOf(HasSubstr("resuming from"), Not(HasSubstr("weights from"))));
  EXPECT_TRUE(tensors("new", 20) == want);
}

TEST_F(Resume, AnOlderCheckpointNeedsANewRun) {
  train("run", "--save-every 5");
  const std::string older = trainer::checkpoint_directory(path("run"), 10).string();
  const Outcome refused = run_program(options("run", "--num-iterations 30 --resume " + older));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is not the newest of its run, which has reached step 20"));
  // With the options of the checkpoint's run.
  const test::Outcome branch =
      run_program(fmt::format("train --resume {} --out {}", older, path("branch").string()));
  ASSERT_EQ(branch.code, 0) << branch.err;
  EXPECT_TRUE(tensors("branch", 20) == tensors("run", 20));
}

TEST_F(Resume, ReportsChangedOptions) {
  train("run", "--save-every 10");
  forget_after("run", 10);
  const Outcome outcome =
      train("run",
            "--resume auto --matrix-lr 0.25 --devices 1 --sample-every 7 --total-batch-size 384 "
            "--max-grad-norm 5 --outlier-deviations 9 --on-outlier skip --max-skipped 7");
  for (const char* const change :
       {"matrix-lr 0.3, now 0.25", "devices 2, now 1", "total-batch-size 768, now 384",
        "max-grad-norm 0, now 5", "outlier-deviations 8, now 9", "on-outlier log, now skip",
        "max-skipped 100, now 7"})
    EXPECT_THAT(outcome.out, HasSubstr(change));
  EXPECT_THAT(outcome.out, Not(HasSubstr("sample-every")));
}

// The other text has the same number of tokens.
TEST_F(Resume, DetectsAnotherText) {
  train("run", "--num-iterations 10");
  EXPECT_THAT(train("run", "--num-iterations 15 --resume auto").out, Not(HasSubstr("other data")));
  std::string text = test::read_file(text_);
  std::ranges::replace(text, 'l', 'L');
  test::write_file(text_, text);
  EXPECT_THAT(train("run", "--resume auto").out, HasSubstr("the run continues with the new data"));
  const Outcome same = run_program("eval " + path("run").string());
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, Not(HasSubstr("warning")));
  std::ranges::replace(text, 'L', 'l');
  test::write_file(text_, text);
  const Outcome other = run_program("eval " + path("run").string());
  EXPECT_THAT(other.out, HasSubstr("warning: the held-out data differs from that of "));
  const Outcome asked = run_program("eval " + path("run").string() + " --data " + text_.string());
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, Not(HasSubstr("warning")));
}

TEST_F(Resume, RefusesAnotherTokenizer) {
  const auto tokenizer = [&](const std::string& name, const std::string& text) {
    test::write_file(path(name + ".txt"), text);
    const std::string file = path(name + ".json").string();
    EXPECT_EQ(run_program("tokenizer train --data " + path(name + ".txt").string() +
                          " --vocab-size 270 --out " + file)
                  .code,
              0);
    return " --tokenizer " + file;
  };
  const std::string one = tokenizer("one", test::read_file(text_));
  const std::string two = tokenizer("two", "some other text, some other words, some more of them");
  train("run", one);
  const std::string run = path("run").string();
  EXPECT_EQ(run_program(options("next", one + " --init-from " + run)).code, 0);
  const auto refuses = [](const std::string& command) {
    const Outcome outcome = run_program(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr(": its tokenizer's fingerprint is")) << command;
  };
  for (const char* const option : {" --init-from ", " --resume "})
    refuses(options("other", "--num-iterations 30" + two + option + run));
  fs::copy_file(path("two.json"), path("run/tokenizer.json"), fs::copy_options::overwrite_existing);
  refuses("eval " + run);
  refuses("sample " + run);
  refuses("checkpoint export " + run + " --hf-code " + path("export").string());
}

TEST_F(Resume, RejectsAnEmptyConfig) {
  train("run", "--save-every 10");
  test::write_file(path("run") / "config.toml", "");
  const Outcome outcome = run_program("train --resume " + path("run").string());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("config.toml is empty, so it is damaged: give the run's"));
}

TEST_F(Resume, CheckpointsAreInspectedAndVerified) {
  train("run", "--save-every 10");
  const std::string run = path("run").string();
  const Outcome inspected = run_program("checkpoint inspect --checkpoint " + run);
  EXPECT_EQ(inspected.code, 0);
  for (const char* text :
       {"step 20, 20 updates, 480 rows, 15,360 tokens, seed 42, written by 2 devices", "n_embd 32",
        "transformer.h.0.attn.c_q.weight.momentum", "total-batch-size = 768"})
    EXPECT_THAT(inspected.out, HasSubstr(text));
  const Outcome good = run_program("checkpoint verify --checkpoint " + run);
  EXPECT_EQ(good.code, 0);
  EXPECT_THAT(good.out,
              AllOf(HasSubstr("step_00000020: intact"), HasSubstr("step_00000010: intact")));
  std::string bytes =
      test::read_file(trainer::checkpoint_directory(path("run"), 10) / "optimizer.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  test::write_file(trainer::checkpoint_directory(path("run"), 10) / "optimizer.safetensors", bytes);
  const Outcome bad = run_program("checkpoint verify --checkpoint " + run);
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("step_00000020: intact"),
                             HasSubstr("step_00000010: DAMAGED"), HasSubstr("checksum")));
  EXPECT_THAT(bad.err, HasSubstr("1 of 2 checkpoints damaged"));
  EXPECT_EQ(run_program("checkpoint verify --checkpoint " + path("nowhere").string()).code, 2);
}

// config.json is for other programs: only verify checks it here. If standard output is closed,
// output must not be written into the first file that is opened.
TEST_F(Resume, ClosedOutputDoesNotGoToAFileOfTheRun) {
  const Outcome outcome = run_program(options("run", "--num-iterations 2"), "exec >&-; ");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(test::read_file(path("run/run.lock")),
              testing::MatchesRegex("process [0-9]+ on [^\n]*\n?"));
  EXPECT_EQ(metrics("run", "train").size(), 2U);
}

TEST_F(Resume, ACheckpointHasItsModelInConfigJson) {
  train("run");
  const fs::path checkpoint = trainer::checkpoint_directory(path("run"), 20);
  const json config = json::parse(test::read_file(checkpoint / trainer::kConfigName));
  EXPECT_EQ(config["model"]["n_embd"], 32);
  EXPECT_EQ(config["model"]["n_layer"], 1);
  EXPECT_EQ(config, json::parse(trainer::Checkpoint(checkpoint).info().config));
  test::write_file(checkpoint / trainer::kConfigName, json{{"model", {{"n_embd", 64}}}}.dump());
  const std::string verify = "checkpoint verify --checkpoint " + path("run").string();
  const Outcome changed = run_program(verify);
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.out, HasSubstr("config.json differs from the configuration in manifest"));
  train("run", "--num-iterations 22 --resume auto");
  fs::remove(checkpoint / trainer::kConfigName);
  const Outcome missing = run_program(verify);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.out, HasSubstr("config.json: "));
}

}  // namespace
}  // namespace muo
