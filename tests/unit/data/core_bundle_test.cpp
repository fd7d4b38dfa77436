// Compares CORE bundles with nanochat's results on tests/golden/core
// (scripts/golden/make_core_golden.py).
#include "data/examples/core_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

#include "base/check.h"
#include "data/examples/core_prompts.h"
#include "data/token_data.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempDir;
using testing::EndsWith;
using testing::HasSubstr;
using Json = nlohmann::json;

fs::path golden() { return fs::path(test::source_directory()) / "tests/golden/core"; }

std::vector<Json> expected() {
  std::vector<Json> out;
  std::ifstream file(golden() / "prompts.jsonl");
  for (std::string line; std::getline(file, line);)
    out.push_back(Json::parse(line));
  EXPECT_EQ(out.size(), 15U);
  return out;
}

const CoreTask& task_of(const std::vector<CoreTask>& tasks, const std::string& label) {
  return *std::ranges::find(tasks, label, &CoreTask::label);
}

std::vector<std::int64_t> lines_of(const CoreTask& task, const std::vector<std::size_t>& items) {
  std::vector<std::int64_t> out;
  out.reserve(items.size());
  for (const std::size_t item : items)
    out.push_back(task.items[item].line);
  return out;
}

TEST(CoreBundle, IsReadAndRenderedAsByNanochat) {
  const std::vector<CoreTask> some = read_core_bundle(golden() / "bundle", 8);
  ASSERT_EQ(some.size(), 5U);
  EXPECT_EQ(task_of(some, "sums").items.size(), 8U);
  const std::vector<CoreTask> all = read_core_bundle(golden() / "bundle", 0);
  const CoreTask& sums = task_of(all, "sums");
  EXPECT_EQ(sums.items.size(), 24U);
  const std::vector<std::size_t> first = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(lines_of(sums, first), lines_of(task_of(some, "sums"), first));
  for (const Json& want : expected()) {
    const std::size_t index = want["index"];
    const CoreTask& task = task_of(some, want["label"]);
    EXPECT_EQ(task.baseline, 0.01 * want["baseline"].get<double>());
    EXPECT_EQ(task.items.at(index).line, want["line"]);
    EXPECT_EQ(lines_of(task, core_shots(task, index)),
              want["shots"].get<std::vector<std::int64_t>>());
    EXPECT_EQ(core_prompts(task, index), want["prompts"].get<std::vector<std::string>>());
  }
}

// Also compares the scored tokens with nanochat's start and end indices.
TEST(CoreBundle, IsScoredAsByNanochat) {
  const std::vector<CoreTask> tasks = read_core_bundle(golden() / "bundle", 8);
  const auto bytes = open_tokenizer("byte");
  std::map<std::string, TokenTask> tokenized;
  for (const CoreTask& task : tasks)
    tokenized[task.label] = tokenize_core(task, *bytes, kBosToken, 10'000, 2);
  std::size_t rows = 0;
  for (const Json& want : expected()) {
    const TokenTask& task = tokenized.at(want["label"]);
    const TokenTask::Example& example = task.examples.at(want["index"].get<std::size_t>());
    ASSERT_EQ(example.rows, want["ends"].size());
    for (std::size_t i = 0; i < example.rows; ++i, ++rows) {
      const ExampleRow& row = task.rows[example.first_row + i];
      EXPECT_EQ(row.scored, want["starts"][i]) << want;
      EXPECT_EQ(row.length(), want["ends"][i]) << want;
      std::vector<std::int32_t> tokens;
      task.read(row, tokens);
      const std::string prompt = want["prompts"][example.rows == 1 ? 1 : i];
      EXPECT_EQ(tokens, test::document(prompt));
    }
  }
  EXPECT_EQ(rows, 36U);
  EXPECT_EQ(tokenized.at("sums").kind, TaskKind::kContinuation);
  EXPECT_EQ(tokenized.at("pronouns").kind, TaskKind::kChoices);
}

TEST(CoreBundle, LongPromptsLoseTheirBeginning) {
  const std::vector<CoreTask> tasks = read_core_bundle(golden() / "bundle", 8);
  const auto bytes = open_tokenizer("byte");
  const CoreTask& task = task_of(tasks, "animals");
  const TokenTask whole = tokenize_core(task, *bytes, kBosToken, 10'000, 1);
  const TokenTask cut = tokenize_core(task, *bytes, kBosToken, 50, 1);
  EXPECT_EQ(cut.cropped, std::ssize(cut.rows));
  for (std::size_t i = 0; i < cut.rows.size(); ++i) {
    std::vector<std::int32_t> long_row, short_row;
    whole.read(whole.rows[i], long_row);
    cut.read(cut.rows[i], short_row);
    EXPECT_EQ(short_row, std::vector<std::int32_t>(long_row.end() - 50, long_row.end()));
    EXPECT_EQ(cut.rows[i].scored_tokens(), whole.rows[i].scored_tokens());
  }
  EXPECT_THAT(message_of<InputError>([&] { tokenize_core(task, *bytes, kBosToken, 4, 1); }),
              HasSubstr("animals.jsonl: line 1: the scored part has"));
}

// A bundle with one task of each type, in which tests replace single files.
class BrokenBundle : public testing::Test {
 protected:
  BrokenBundle() {
    write("core.yaml",
          "icl_tasks:\n"
          "- {label: a, dataset_uri: a.jsonl, num_fewshot: [0], icl_task_type: multiple_choice}\n"
          "- {label: b, dataset_uri: b.jsonl, num_fewshot: [0], icl_task_type: schema}\n"
          "- {label: c, dataset_uri: c.jsonl, num_fewshot: [1], icl_task_type: "
          "language_modeling}\n");
    write("eval_meta_data.csv", "Eval Task,Random baseline\na,25\nb,50\nc,0\n");
    write("eval_data/a.jsonl", "{\"query\": \"q\", \"choices\": [\"x\", \"y\"], \"gold\": 1}\n");
    write("eval_data/b.jsonl",
          "{\"context_options\": [\"x\", \"y\"], \"continuation\": \"c\", \"gold\": 0}\n");
    write("eval_data/c.jsonl",
          "{\"context\": \"x\", \"continuation\": \"y\"}\n{\"context\": \"x\", "
          "\"continuation\": \"z\"}\n");
  }
  void write(const std::string& name, const std::string& text) { dir_.write(name, text); }
  [[nodiscard]] std::string message(std::int64_t max_per_task = 0) const {
    return message_of<InputError>([&] { read_core_bundle(dir_.path(), max_per_task); });
  }
  void expect(const std::string& name, const std::string& text, const std::string& end) {
    const std::string before = test::read_file(dir_.path() / name);
    write(name, text);
    EXPECT_EQ(message(), (dir_.path() / name).native() + end);
    write(name, before);
  }
  [[nodiscard]] std::string yaml_with(const std::string& from, const std::string& to) const {
    std::string text = test::read_file(dir_.path() / "core.yaml");
    return text.replace(text.find(from), from.size(), to);
  }
  TempDir dir_;
};

TEST_F(BrokenBundle, IsValidAtFirst) { EXPECT_EQ(message(), "no exception"); }

TEST_F(BrokenBundle, ErrorsNameTheFaultInAnItem) {
  expect("eval_data/a.jsonl", "", ": the file is empty");
  expect("eval_data/a.jsonl", "{\"query\": \"q\", \"choices\": [\"x\", \"y\"]}\n",
         ": line 1: \"gold\" is missing");
  expect("eval_data/a.jsonl", "{\"query\": \"q\", \"choices\": [\"x\", \"y\"], \"gold\": 2}\n",
         ": line 1: \"gold\" is 2, not a whole number from 0 to 1");
  expect("eval_data/a.jsonl", "{\"query\": \"q\", \"choices\": [\"x\", \"y\"], \"gold\": -1}\n",
         ": line 1: \"gold\" is -1, not a whole number from 0 to 1");
  expect("eval_data/a.jsonl", "{\"query\": \"q\", \"choices\": [\"x\"], \"gold\": 0}\n",
         ": line 1: \"choices\" is not a list of two or more texts");
  expect("eval_data/a.jsonl", "{\"query\": \"q\", \"choices\": [\"x\", null], \"gold\": 0}\n",
         ": line 1: \"choices\" is not a list of two or more texts");
  expect("eval_data/b.jsonl", "{\"context_options\": [\"x\", \"y\"], \"gold\": 0}\n",
         ": line 1: \"continuation\" is missing");
  expect("eval_data/c.jsonl",
         "{\"context\": \"x\", \"continuation\": \"y\"}\n{\"context\": 1.5, \"continuation\": "
         "\"y\"}\n",
         ": line 2: \"context\" is of type number, not a text");
  expect("eval_data/c.jsonl", "[1]\n", ": line 1: not a JSON object");
  write("eval_data/c.jsonl", "{\"context\": \"x\", \"continuation\": \"y\"}\n\n");
  EXPECT_THAT(message(), HasSubstr("c.jsonl: line 2: malformed JSON"));
}

TEST_F(BrokenBundle, ErrorsNameTheFaultInATask) {
  expect("core.yaml", yaml_with("schema", "riddle"),
         ": line 3: b: icl_task_type \"riddle\" is unknown: expected multiple_choice, schema or "
         "language_modeling");
  expect("core.yaml", yaml_with("label: b, ", ""), ": line 3: a task without label");
  expect("core.yaml", yaml_with("label: b", "label: a"),
         ": line 3: a second task with the label a");
  expect("core.yaml", yaml_with("[1]", "[x]"),
         ": line 4: num_fewshot is not a list of numbers from 0 to 1000");
  expect("core.yaml", yaml_with("[1]", "[-1]"),
         ": line 4: num_fewshot is not a list of numbers from 0 to 1000");
  expect("core.yaml", yaml_with("[1]", "[1], continuation_delimiter: ~"),
         ": line 4: c: continuation_delimiter is not a string");
  for (const std::string file : {"/etc/passwd", "../b.jsonl", "x/../../b.jsonl", ".."})
    expect("core.yaml", yaml_with("b.jsonl", file),
           ": line 3: b: dataset_uri \"" + file +
               "\" leaves the bundle: give a path below its eval_data");
}

TEST_F(BrokenBundle, ErrorsNameMissingBaselinesAndFiles) {
  expect("eval_meta_data.csv", "Eval Task,Random baseline\na,25\nc,0\n",
         ": no baseline for the task b");
  expect("eval_meta_data.csv", "Eval Task,Random baseline\na,25\nb,x\nc,0\n",
         ": line 3: the random baseline of b is not a number in [0, 100)");
  expect("eval_meta_data.csv", "Eval Task,Random baseline\na,25\nb,100\nc,0\n",
         ": line 3: the random baseline of b is not a number in [0, 100)");
  expect("eval_meta_data.csv", "Eval Task,Baseline\na,25\n",
         ": line 1: no column \"Random baseline\"");
  expect("eval_meta_data.csv", "", ": the file is empty");
  fs::remove(dir_.path() / "eval_data/b.jsonl");
  EXPECT_THAT(message(), HasSubstr("eval_data/b.jsonl"));
}

TEST_F(BrokenBundle, RequiresExamplesForTheShots) {
  EXPECT_EQ(message(2), "no exception");
  EXPECT_THAT(message(1),
              HasSubstr("c.jsonl: 1 few-shot examples before each need at least 2 examples, but "
                        "there are 1; give more by --max-per-task, or fewer by num_fewshot"));
}

TEST_F(BrokenBundle, RequiresContinuationsWithTokens) {
  write("eval_data/c.jsonl",
        "{\"context\": \"x\", \"continuation\": \"y\"}\n{\"context\": \"x\", \"continuation\": "
        "\"\"}\n");
  write("core.yaml", yaml_with("c.jsonl, ", "c.jsonl, continuation_delimiter: '', "));
  const std::vector<CoreTask> tasks = read_core_bundle(dir_.path(), 0);
  const auto bytes = open_tokenizer("byte");
  EXPECT_THAT(
      message_of<InputError>([&] { tokenize_core(tasks.back(), *bytes, kBosToken, 99, 1); }),
      EndsWith("c.jsonl: line 2: the continuation adds no tokens"));
}

}  // namespace
}  // namespace muo::data
