#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "system/run_files.h"

namespace muo::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// A run written by an earlier version (tests/golden/README.md) and its text.
class EarlierRun : public testing::Test {
 protected:
  EarlierRun() {
    const fs::path golden = fs::path(source_directory()) / "tests/golden/run_0.1.0";
    fs::copy(golden, run_, fs::copy_options::recursive);
    text_ = (golden / "text.txt").string();
  }

  // Records by kind and step.
  [[nodiscard]] std::map<std::string, json> records() const {
    std::map<std::string, json> out;
    for (const json& record : metrics_of(run_))
      out[record.at("kind").get<std::string>() + record.at("step").dump()] = record;
    return out;
  }

  TemporaryDirectory directory_;
  fs::path run_ = directory_.path() / "run";
  std::string text_;
};

TEST_F(EarlierRun, ResumesWithTheSameResults) {
  const std::map<std::string, json> before = records();
  const Outcome outcome = run_program("train --resume " + run_.string() + " --data " + text_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("at step 2"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("changed since")))
      << "options that were read otherwise";
  const std::map<std::string, json> after = records();
  for (const auto& [name, record] : before)
    ASSERT_TRUE(after.contains(name)) << name;
  // The CPU that wrote the run sums products in another order.
  constexpr double kRounding = 1e-5;
  for (const char* step : {"train2", "train3"})
    EXPECT_NEAR(after.at(step).at("loss"), before.at(step).at("loss"), kRounding) << step;
  EXPECT_NEAR(after.at("eval4").at("val_loss"), before.at("eval4").at("val_loss"), kRounding);
  for (const char* key : {"lr_multiplier", "muon_momentum", "muon_weight_decay", "tokens"})
    EXPECT_EQ(after.at("train3").at(key), before.at("train3").at(key)) << key;
}

// Its checkpoint has no number of rows; the number follows from its steps of one row each.
TEST_F(EarlierRun, ResumesWithTheNextRowOfAnotherBatch) {
  const std::string inspect = "checkpoint inspect " + run_.string();
  EXPECT_THAT(run_program(inspect).out, HasSubstr("step 2, 2 updates, 2 rows, 32 tokens"));
  const Outcome outcome =
      run_program("train --total-batch-size 48 --resume " + run_.string() + " --data " + text_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(records().at("train2").at("tokens"), 32 + 48);
  EXPECT_THAT(run_program(inspect).out, HasSubstr("step 4, 4 updates, 8 rows, 128 tokens"));
}

TEST_F(EarlierRun, IsEvaluatedVerifiedAndSampled) {
  const std::string run = run_.string();
  const Outcome evaluated = run_program("eval " + run + " --data " + text_);
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("loss 5.5"));
  const Outcome verified = run_program("checkpoint verify " + run);
  EXPECT_EQ(verified.code, 0) << verified.err;
  const Outcome sampled = run_program("sample " + run + " --max-tokens 4 --prompt a");
  EXPECT_EQ(sampled.code, 0) << sampled.err;
  const Outcome again = run_program("plan --json --config " + run + "/config.toml --data " + text_);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("parameters"), 29992);
}

}  // namespace
}  // namespace muo::test
