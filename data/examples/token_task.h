#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muo::data {

// A row of tokens for the model: a range of TokenTask::tokens from `shared` on, which the rows of
// an example have in common, followed by a range from `own` on. Positions from `scored` on are
// scored; `scored` is at least 1, because nothing predicts the first token.
struct ExampleRow {
  std::size_t shared = 0, own = 0;
  std::int32_t shared_length = 0, own_length = 0;
  std::int32_t scored = 1;

  [[nodiscard]] std::int32_t length() const { return shared_length + own_length; }
  [[nodiscard]] std::int32_t scored_tokens() const { return length() - scored; }
};

// kChoices: one of an example's rows is right; the model chooses the most likely row.
// kContinuation: there is a single row, which counts as right if each of its scored tokens is the
// most likely one.
enum class TaskKind : std::uint8_t { kChoices, kContinuation };

// Tokenized examples with known answers.
struct TokenTask {
  struct Example {
    std::size_t first_row = 0, rows = 0;
    std::size_t gold = 0;  // index of the right row
  };
  std::string name;
  TaskKind kind = TaskKind::kChoices;
  std::int64_t shots = 0;               // few-shot examples before each example
  std::optional<double> baseline = {};  // accuracy of random answers, as a fraction
  std::vector<Example> examples = {};
  std::vector<ExampleRow> rows = {};
  std::vector<std::int32_t> tokens = {};
  std::int64_t cropped = 0;  // rows whose beginning was cropped

  // Adds an example; prompts[i] is scored from starts[i] on. A prompt of more than `row_tokens`
  // tokens loses its beginning. Throws InputError, whose message starts with `where`, if no token
  // is then left before the scored ones.
  void add(std::span<const std::vector<std::int32_t>> prompts, std::span<const std::size_t> starts,
           std::size_t gold, std::int64_t row_tokens, const std::string& where);
  // Appends the tokens of a row to `out`.
  void read(const ExampleRow& row, std::vector<std::int32_t>& out) const;
};

// The model's result for a row's scored tokens.
struct RowScore {
  double nats = 0;            // summed loss
  bool all_predicted = true;  // each is the most likely token at its position
};

struct TaskScore {
  std::int64_t examples = 0;
  double accuracy = 0;          // as a fraction; for kChoices, of the rows with the least mean loss
  double accuracy_of_sums = 0;  // the same for the rows with the least summed loss
};
// Scores the examples by `rows`, the results for task.rows. Among equal rows, the first one is
// chosen; a row without scored tokens is chosen only if it is the first one, as with NaN in
// Python's min(). Throws Error if the loss of a row is not finite.
TaskScore score_task(const TokenTask& task, std::span<const RowScore> rows);

// 0 if answers are random, 1 if all are right.
double centred_accuracy(double accuracy, double baseline);

// The length of the common prefix, or suffix, of all sequences.
std::size_t common_prefix(std::span<const std::vector<std::int32_t>> sequences);
std::size_t common_suffix(std::span<const std::vector<std::int32_t>> sequences);

}  // namespace muo::data
