#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/program.h"
#include "system/training_run.h"

// Runs resumed with another batch or on other devices: which rows they read, and what they count.
namespace muo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kLength = 32;   // tokens of a row
constexpr std::uint16_t kFirst = 200;  // token that begins documents

class ChangedBatch : public Training {
 protected:
  ChangedBatch() {
    // More documents than the packing buffer holds, so that packed rows differ.
    std::mt19937 random(1);
    std::vector<std::uint16_t> tokens;
    for (int document = 0; document < 3000; ++document) {
      tokens.push_back(kFirst);
      for (auto left = 2 + random() % 40; left > 0; --left)
        tokens.push_back(static_cast<std::uint16_t>(random() % kFirst));
    }
    text_ = shard("tokens.bin", tokens);
  }

  // The weights stay constant, so that a step's loss identifies its rows.
  [[nodiscard]] std::string command(const std::string& out, const std::string& more) const {
    return fmt::format(
        "train --data {} --bos-token {} --out {} --model plain --depth 1 --n-embd 32 --n-head 2 "
        "--max-seq-len {} --matrix-lr 0 --embedding-lr 0 --unembedding-lr 0 --scalar-lr 0 "
        "--weight-decay 0 --eval-every -1 --sample-every -1 {}",
        text_.string(), kFirst, path(out).string(), kLength, more);
  }
  Outcome train(const std::string& out, const std::string& more) {
    Outcome outcome = run_program(command(out, more));
    if (outcome.code != 0) throw Error("exit code not 0: " + outcome.err + outcome.out);
    return outcome;
  }
  [[nodiscard]] std::string config(const std::string& out) const {
    return test::read_file(path(out) / "config.toml");
  }
};

// A part of a run: `steps` steps of `rows` rows each, with the additional options `more`.
struct Part {
  std::int64_t steps, rows;
  std::string more;
};

TEST_F(ChangedBatch, ContinuesWithTheNextRowAndCountsEveryToken) {
  const std::vector<Part> parts = {
      {4, 2, "--devices 1"}, {3, 4, "--devices 2"}, {2, 3, "--devices 3"}, {4, 1, "--devices 1"}};
  for (const std::string packing : {"contiguous", "best-fit"}) {
    const std::string packed = " --packing " + packing;
    train("rows-" + packing,
          fmt::format("--devices 1 --total-batch-size {} --num-iterations 30{}", kLength, packed));
    const std::vector<double> rows = losses("rows-" + packing);  // losses of single rows
    ASSERT_EQ(rows.size(), 30U);
    std::int64_t steps = 0, row = 0;
    std::vector<double> want;
    std::vector<std::int64_t> tokens;
    for (const Part& part : parts) {
      steps += part.steps;
      for (std::int64_t i = 0; i < part.steps; ++i, row += part.rows) {
        want.push_back(std::accumulate(rows.begin() + row, rows.begin() + row + part.rows, 0.0) /
                       static_cast<double>(part.rows));
        tokens.push_back((row + part.rows) * kLength);
      }
      const Outcome outcome =
          train(packing, fmt::format("--resume auto --num-iterations {} --total-batch-size {} {}{}",
                                     steps, part.rows * kLength, part.more, packed));
      EXPECT_THAT(outcome.out,
                  HasSubstr(fmt::format("horizon: {} steps: {} tokens", steps, row * kLength)));
    }
    const std::vector<json> records = metrics(packing, "train");
    ASSERT_EQ(records.size(), want.size());
    for (std::size_t step = 0; step < want.size(); ++step) {
      EXPECT_NEAR(records[step]["loss"].get<double>(), want[step], 1e-5) << packing << step;
      EXPECT_EQ(records[step]["tokens"], tokens[step]) << packing << step;
    }
    EXPECT_THAT(run_program("checkpoint inspect " + path(packing).string()).out,
                HasSubstr("step 13, 13 updates, 30 rows, 960 tokens"));
    const std::string plan = "plan --resume " + path(packing).string() + " --total-batch-size 64 ";
    const std::string given = plan + "--num-iterations 20 ";
    EXPECT_EQ(json::parse(run_program(given + "--json").out)["total_tokens"], 960 + 7 * 64);
    EXPECT_THAT(run_program(given).out,
                HasSubstr("horizon: 20 steps, 13 of them done with 960 tokens, the others of 64:"));
    // An automatic horizon includes the tokens trained before: 10 per parameter, in steps of 64.
    const json longer = json::parse(run_program(plan + "--json --target-param-data-ratio 10").out);
    EXPECT_EQ(longer["iterations"], 13 + (longer["target_tokens"].get<std::int64_t>() - 960) / 64);
  }
  EXPECT_NE(losses("rows-best-fit"), losses("rows-contiguous"));
}

TEST_F(ChangedBatch, AutomaticValuesAreDerivedAnew) {
  train("rows", "--devices 1 --total-batch-size 128 --num-iterations 1");
  EXPECT_THAT(config("rows"), HasSubstr("device-batch-size = 4\n"));
  const Outcome fewer = train("rows", "--total-batch-size 64 --num-iterations 2 --resume auto");
  EXPECT_THAT(fewer.out, HasSubstr("device-batch-size 4, now 2; total-batch-size 128, now 64"));

  // An automatic total becomes the multiple for the new devices that is nearest to the target.
  const std::string run = "--resume auto --num-iterations ";
  train("total", "--target-batch-size 128 --devices 2 --num-iterations 1");
  const std::string two = config("total");
  EXPECT_THAT(two, AllOf(HasSubstr("\ntotal-batch-size = 128\n"),
                         HasSubstr("\ntarget-batch-size = 128\n")));
  EXPECT_THAT(train("total", run + "2").out, Not(HasSubstr("total-batch-size")));
  EXPECT_THAT(train("total", run + "3 --devices 3").out,
              HasSubstr("total-batch-size 128, now 96; num-iterations 2, now 3; devices 2, now 3"));
  train("total", run + "4 --devices 2");
  EXPECT_THAT(config("total"), HasSubstr("\ntotal-batch-size = 128\n"));
  EXPECT_EQ(metrics("total", "train").back()["tokens"], 128 + 128 + 96 + 128);

  // An explicit total is not changed: the user must give another one.
  train("given", "--total-batch-size 128 --devices 2 --num-iterations 1");
  const Outcome refused = run_program(command("given", run + "2 --devices 3"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--total-batch-size 128: not a multiple of 96 tokens "
                                     "(--max-seq-len 32 x --devices 3): give 96 or 192"));
  train("given", run + "2 --devices 3 --total-batch-size 96");
  EXPECT_THAT(config("given"), HasSubstr("\ntarget-batch-size = \"auto\"\n"));
}

TEST_F(ChangedBatch, WithAnotherRowLengthIsRejected) {
  train("run", "--devices 1 --total-batch-size 128 --num-iterations 1");
  for (const std::string length : {"48", "64"}) {
    const Outcome refused = run_program("train --resume " + path("run").string() +
                                        " --num-iterations 2 --max-seq-len " + length);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("--max-seq-len " + length + ": the resumed run has rows of 32"),
                      HasSubstr("omit the option, or start a new run")));
    EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
  }
}

}  // namespace
}  // namespace muo
