// Runs `muograph eval --hellaswag` and `--core` as a user does.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <string>

#include "support/command.h"
#include "support/paths.h"
#include "system/training_run.h"

namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class EvalExamples : public Training {
 protected:
  EvalExamples() { train("run", "--num-iterations 4 --eval-every -1"); }
  [[nodiscard]] Outcome eval(const std::string& options) const {
    return run_program("eval " + path("run").string() + " " + options);
  }
  [[nodiscard]] Json json(const std::string& options) const {
    const Outcome outcome = eval(options + " --json");
    if (outcome.code != 0) throw Error("exit code not 0: " + outcome.err);
    return Json::parse(outcome.out);
  }
  [[nodiscard]] static std::string golden(const std::string& name) {
    return test::source_directory() + "/tests/golden/core/" + name;
  }
  const std::string core_ = "--core " + golden("bundle") + " --row-tokens 200";
};

TEST_F(EvalExamples, IsTheSameOnAnyNumberOfDevices) {
  const std::string both = core_ + " --hellaswag " + golden("hellaswag.jsonl");
  const Json one = json(both + " --devices 1");
  const Json& core = one["core"];
  ASSERT_EQ(core["tasks"].size(), 5U);
  double sum = 0;
  for (const Json& task : core["tasks"]) {
    const double chance = task["random_baseline"];
    EXPECT_DOUBLE_EQ(task["centered"], (task["accuracy"].get<double>() - chance) / (1 - chance));
    sum += task["centered"].get<double>();
  }
  EXPECT_DOUBLE_EQ(core["core_metric"], sum / 5);
  EXPECT_EQ(core["tasks"][4]["label"], "sums");
  EXPECT_EQ(core["tasks"][4]["type"], "language_modeling");
  EXPECT_EQ(core["tasks"][4]["num_fewshot"], 6);
  EXPECT_EQ(core["tasks"][4]["examples"], 24);
  EXPECT_EQ(one["hellaswag"]["examples"], 4);
  for (const char* other : {" --devices 2", " --devices 3 --device-batch-size 5"})
    EXPECT_EQ(json(both + other), one) << other;
}

TEST_F(EvalExamples, ReadsTextAndTokensOfHellaSwag) {
  const Json text = json("--row-tokens 60 --hellaswag " + golden("hellaswag.jsonl"));
  Json tokens = json("--row-tokens 60 --hellaswag " + golden("hellaswag.bin"));
  tokens["hellaswag"]["file"] = text["hellaswag"]["file"];
  EXPECT_EQ(tokens, text);
  EXPECT_FALSE(text.contains("core"));
}

TEST_F(EvalExamples, PrintsATable) {
  const std::string options = "--core " + golden("bundle") +
                              " --row-tokens 60 --max-per-task 7 --hellaswag " +
                              golden("hellaswag.bin");
  const Outcome outcome = eval(options);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto expect_line = [&](const std::string& line) {
    EXPECT_THAT(outcome.out, HasSubstr("\n" + line + "\n"));
  };
  const auto number = [](const Json& json) { return json.get<double>(); };
  const Json all = json(options), &hellaswag = all["hellaswag"], &core = all["core"];
  expect_line(fmt::format("hellaswag: 4 examples, acc {:.4f}, acc_norm {:.4f}",
                          number(hellaswag["acc"]), number(hellaswag["acc_norm"])));
  expect_line("  task              shots  examples  accuracy  centred");
  std::int64_t cropped = hellaswag["cropped_rows"];
  for (const Json& task : core["tasks"]) {
    expect_line(fmt::format("  {:<16} {:>6} {:>9} {:>9.4f} {:>8.4f}",
                            task["label"].get<std::string>(), task["num_fewshot"].get<int>(),
                            task["examples"].get<int>(), number(task["accuracy"]),
                            number(task["centered"])));
    cropped += task["cropped_rows"].get<std::int64_t>();
  }
  expect_line(fmt::format("  {:<16} {:>35.4f}", "CORE", number(core["core_metric"])));
  EXPECT_THAT(outcome.out, testing::ContainsRegex(
                               fmt::format("\n{} of [0-9]+ rows are longer than 60 tokens and "
                                           "were cut at the start",
                                           cropped)));
}

TEST_F(EvalExamples, ReportsErrorsBeforeAnyWork) {
  const auto refused = [&](const std::string& options, const std::string& reason) {
    const Outcome outcome = eval(options);
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_EQ(outcome.out, "") << options;
  };
  refused("--core nowhere", "nowhere/core.yaml");
  refused("--hellaswag nowhere.jsonl", "nowhere.jsonl");
  refused("--core " + golden("bundle") + " --max-per-task 3",
          "3 few-shot examples before each need");
  refused("--core " + golden("bundle") + " --row-tokens 3", "give --row-tokens ");
  refused("--row-tokens 40", "--row-tokens needs --hellaswag or --core");
  refused(core_ + " --eval-tokens 40", "--eval-tokens has no effect with --hellaswag");
  test::write_file(path("h.jsonl"),
                   "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 2}\n");
  refused("--hellaswag " + path("h.jsonl").string(), "h.jsonl: line 1: \"label\" is 2");
}

}  // namespace
}  // namespace muo
