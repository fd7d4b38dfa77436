#include "kit/eval_examples.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json_text.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "base/threads.h"
#include "data/examples/core_bundle.h"
#include "data/examples/core_prompts.h"
#include "data/examples/hellaswag.h"
#include "graphs/capture.h"
#include "kit/progress_text.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/infer/inference.h"
#include "trainer/run/backend.h"
#include "trainer/train/example_evaluator.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

// Tasks in the order of evaluation, with the types of CORE's tasks.
struct Tasks {
  std::vector<data::TokenTask> tasks;
  std::vector<std::string> core_types;  // types of CORE's tasks, which come last

  [[nodiscard]] std::size_t first_of_core() const { return tasks.size() - core_types.size(); }
};

class TokenizerOfRun {
 public:
  TokenizerOfRun(const trainer::Checkpoint& checkpoint, std::int64_t vocab_size)
      : name_(trainer::find_run_tokenizer(checkpoint)),
        tokenizer_(trainer::open_run_tokenizer(checkpoint)) {
    if (tokenizer_ == nullptr)
      throw trainer::input_error(
          "{}: the tokenizer of its training is unknown: put the tokenizer.json into the "
          "run's directory, or beside the checkpoint",
          checkpoint.path().string());
    if (tokenizer_->vocab_size() > vocab_size)
      throw trainer::input_error("{}: has {} ids, more than the model's {}", name_.string(),
                                 tokenizer_->vocab_size(), vocab_size);
  }
  [[nodiscard]] const data::Tokenizer& operator*() const { return *tokenizer_; }
  [[nodiscard]] std::int32_t bos() const { return data::need_bos(*tokenizer_, name_); }

 private:
  std::filesystem::path name_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
};

Tasks read_tasks(const trainer::ExampleOptions& options, const trainer::Checkpoint& checkpoint,
                 std::int64_t vocab_size, std::int64_t row_tokens) {
  Tasks out;
  if (!options.hellaswag.empty()) {
    const data::HellaSwagOptions of_file = {
        .row_tokens = row_tokens, .vocab_size = vocab_size, .max_examples = options.max_per_task};
    out.tasks.push_back(data::looks_like_eval_file(options.hellaswag)
                            ? data::read_eval_file(options.hellaswag, of_file)
                            : data::read_hellaswag(options.hellaswag,
                                                   *TokenizerOfRun(checkpoint, vocab_size),
                                                   of_file));
  }
  if (options.core.empty()) return out;
  const std::vector<data::CoreTask> core =
      data::read_core_bundle(options.core, options.max_per_task);
  const TokenizerOfRun tokenizer(checkpoint, vocab_size);
  for (const data::CoreTask& task : core) {
    out.tasks.push_back(
        data::tokenize_core(task, *tokenizer, tokenizer.bos(), row_tokens, usable_cores()));
    out.core_types.emplace_back(name_of(task.type));
  }
  return out;
}

// The progress line while the rows of all tasks are evaluated.
class ExampleView {
 public:
  ExampleView(int fd, std::span<const data::TokenTask> tasks) : terminal_(fd) {
    for (const data::TokenTask& task : tasks)
      rows_ += std::ssize(task.rows);
  }
  void begin(const data::TokenTask& task) { task_ = &task; }
  void end() { before_ += std::ssize(task_->rows); }
  void at(std::int64_t rows) {
    const std::int64_t done = before_ + rows;
    const double seconds = std::chrono::duration<double>(Terminal::Clock::now() - started_).count();
    if (seconds < 1) return;  // short evaluations show no progress
    const ExampleProgress progress{
        .task = task_->name, .done = done, .rows = rows_, .seconds = seconds};
    terminal_.progress(progress_text(progress), false);
  }
  void close() { terminal_.clear(); }

 private:
  Terminal terminal_;
  const data::TokenTask* task_ = nullptr;
  std::int64_t rows_ = 0, before_ = 0;
  Terminal::Clock::time_point started_ = Terminal::Clock::now();
};

double core_metric(const Tasks& tasks, std::span<const data::TaskScore> scores) {
  double sum = 0;
  for (std::size_t i = tasks.first_of_core(); i < tasks.tasks.size(); ++i)
    sum += data::centred_accuracy(scores[i].accuracy, *tasks.tasks[i].baseline);
  return sum / static_cast<double>(tasks.core_types.size());
}

void print_json(const trainer::EvalOptions& options, const trainer::Checkpoint& checkpoint,
                const Tasks& tasks, std::span<const data::TaskScore> scores,
                std::int64_t row_tokens) {
  Json out = {{"checkpoint", checkpoint.path().string()},
              {"step", checkpoint.info().step},
              {"row_tokens", row_tokens}};
  if (!options.examples.hellaswag.empty())
    out["hellaswag"] = {{"file", options.examples.hellaswag},
                        {"examples", scores[0].examples},
                        {"cropped_rows", tasks.tasks[0].cropped},
                        {"acc", scores[0].accuracy_of_sums},
                        {"acc_norm", scores[0].accuracy}};
  if (!options.examples.core.empty()) {
    Json list = Json::array();
    for (std::size_t i = tasks.first_of_core(); i < tasks.tasks.size(); ++i) {
      const data::TokenTask& task = tasks.tasks[i];
      list.push_back({{"label", task.name},
                      {"type", tasks.core_types[i - tasks.first_of_core()]},
                      {"num_fewshot", task.shots},
                      {"examples", scores[i].examples},
                      {"cropped_rows", task.cropped},
                      {"random_baseline", *task.baseline},
                      {"accuracy", scores[i].accuracy},
                      {"centered", data::centred_accuracy(scores[i].accuracy, *task.baseline)}});
    }
    out["core"] = {{"folder", options.examples.core},
                   {"tasks", list},
                   {"core_metric", core_metric(tasks, scores)}};
  }
  fmt::print("{}\n", json_text(out));
}

void print_text(const trainer::EvalOptions& options, const trainer::Checkpoint& checkpoint,
                const Tasks& tasks, std::span<const data::TaskScore> scores,
                std::int64_t row_tokens) {
  say(stdout, fmt::format("{}: step {}\n", checkpoint.path().string(), checkpoint.info().step));
  if (!options.examples.hellaswag.empty())
    say(stdout, fmt::format("hellaswag: {} examples, acc {:.4f}, acc_norm {:.4f}\n",
                            scores[0].examples, scores[0].accuracy_of_sums, scores[0].accuracy));
  if (!options.examples.core.empty()) {
    Table table({"task", "shots", "examples", "accuracy", "centred"});
    for (std::size_t i = tasks.first_of_core(); i < tasks.tasks.size(); ++i) {
      const data::TokenTask& task = tasks.tasks[i];
      table.add(
          {printable(task.name), std::to_string(task.shots), grouped(scores[i].examples),
           fmt::format("{:.4f}", scores[i].accuracy),
           fmt::format("{:.4f}", data::centred_accuracy(scores[i].accuracy, *task.baseline))});
    }
    table.add({"CORE", "", "", "", fmt::format("{:.4f}", core_metric(tasks, scores))});
    say(stdout, fmt::format("{}\n", table.text()));
  }
  std::int64_t rows = 0, cropped = 0;
  for (const data::TokenTask& task : tasks.tasks) {
    rows += std::ssize(task.rows);
    cropped += task.cropped;
  }
  if (cropped > 0)
    say(stdout,
        fmt::format(
            "{} of {} rows are longer than {} tokens and were cut at the start (--row-tokens)\n",
            grouped(cropped), grouped(rows), row_tokens));
}

}  // namespace

int evaluate_examples(const trainer::EvalOptions& options, const trainer::Checkpoint& checkpoint,
                      model::GptConfig config) {
  const std::int64_t row_tokens = options.examples.row_tokens.value_or(config.seq_len);
  const Tasks tasks = read_tasks(options.examples, checkpoint, config.vocab_size, row_tokens);
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  trainer::DeviceOptions devices = options.devices;
  std::vector<std::string> notes;
  const GroupOptions ranks = trainer::choose_devices(devices, notes);
  std::FILE* const text_out = options.json ? stderr : stdout;
  trainer::warn_of_unused_gpus(options.devices.backend, ranks, text_out);
  for (const std::string& note : notes)
    say(text_out, fmt::format("{}\n", note));
  std::fflush(text_out);
  const std::vector<trainer::PassShape> passes =
      trainer::fit_passes(config, params, tasks.tasks, row_tokens, options.device_rows, ranks);
  trainer::require_inference_memory(
      trainer::plan_inference_memory(config, params, {.passes = passes}, 0, ranks.world), ranks,
      checkpoint.path().string(), "give a smaller --device-batch-size, or fewer --devices");

  std::vector<std::vector<data::RowScore>> rows;
  for (const data::TokenTask& task : tasks.tasks)
    rows.emplace_back(task.rows.size());
  ExampleView progress(options.json ? STDERR_FILENO : STDOUT_FILENO, tasks.tasks);
  DeviceGroup group(ranks);
  group.run([&](RankContext& rank) {
    const trainer::InferenceRows shapes = {.passes = passes};
    PlannedArena arena(rank.device, trainer::plan_inference_memory(config, params, shapes,
                                                                   rank.rank, ranks.world));
    trainer::InferenceState state(rank, config, params, shapes, arena);
    graphs::warm_up_and_capture(rank, arena, state);
    trainer::ExampleEvaluator evaluator(rank, state, passes);
    state.load(checkpoint, {});
    for (std::size_t i = 0; i < tasks.tasks.size(); ++i) {
      if (rank.rank != 0) {
        evaluator.run(tasks.tasks[i], rows[i]);
        continue;
      }
      progress.begin(tasks.tasks[i]);
      evaluator.run(tasks.tasks[i], rows[i], [&](std::int64_t done) { progress.at(done); });
      progress.end();
    }
  });
  progress.close();
  std::vector<data::TaskScore> scores;
  for (std::size_t i = 0; i < tasks.tasks.size(); ++i)
    scores.push_back(data::score_task(tasks.tasks[i], rows[i]));
  if (options.json)
    print_json(options, checkpoint, tasks, scores, row_tokens);
  else
    print_text(options, checkpoint, tasks, scores, row_tokens);
  return 0;
}

}  // namespace muo::kit
