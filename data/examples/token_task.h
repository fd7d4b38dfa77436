#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muo::data {

// A row of tokens that a model reads: those of TokenTask::tokens from `shared` on, which it has in
// common with other rows of its example, then those from `own` on. Its score is of the positions
// from `scored` on; at least 1, as the first token has nothing before it that could predict it.
struct ExampleRow {
  std::size_t shared = 0, own = 0;
  std::int32_t shared_length = 0, own_length = 0;
  std::int32_t scored = 1;

  [[nodiscard]] std::int32_t length() const { return shared_length + own_length; }
  [[nodiscard]] std::int32_t scored_tokens() const { return length() - scored; }
};

// kChoices: of an example's rows one is right, and the model chooses the most likely one.
// kContinuation: its one row is right if each scored token is the most likely one.
enum class TaskKind : std::uint8_t { kChoices, kContinuation };

// Examples with known answers, as tokens.
struct TokenTask {
  struct Example {
    std::size_t first_row = 0, rows = 0;
    std::size_t gold = 0;  // of its rows
  };
  std::string name;
  TaskKind kind = TaskKind::kChoices;
  std::int64_t shots = 0;               // solved examples before each
  std::optional<double> baseline = {};  // accuracy of random answers, as a fraction
  std::vector<Example> examples = {};
  std::vector<ExampleRow> rows = {};
  std::vector<std::int32_t> tokens = {};
  std::int64_t cropped = 0;  // rows that lost their beginning

  // Adds an example; prompts[i] is scored from starts[i] on. A prompt of more than `row_tokens`
  // loses its beginning, so that it has as many. Throws InputError that starts with `where` if then
  // not one token is left before those that are scored.
  void add(std::span<const std::vector<std::int32_t>> prompts, std::span<const std::size_t> starts,
           std::size_t gold, std::int64_t row_tokens, const std::string& where);
  // Appends a row's tokens.
  void read(const ExampleRow& row, std::vector<std::int32_t>& out) const;
};

// What a model makes of a row's scored tokens.
struct RowScore {
  double nats = 0;            // sum
  bool all_predicted = true;  // each is the most likely token at its position
};

struct TaskScore {
  std::int64_t examples = 0;
  double accuracy = 0;          // fraction; of kChoices the row of the least mean of nats is chosen
  double accuracy_of_sums = 0;  // the row of the least sum of nats
};
// `rows`: of task.rows. Of equal ones the first is chosen; a row without scored tokens is chosen if
// it is the first only, as Python's min() does with NaN. Throws Error if a row's nats are not
// finite.
TaskScore score_task(const TokenTask& task, std::span<const RowScore> rows);

// 0 for random answers, 1 for right ones.
double centred_accuracy(double accuracy, double baseline);

// How many tokens all sequences have in common at their beginning, or at their end.
std::size_t common_prefix(std::span<const std::vector<std::int32_t>> sequences);
std::size_t common_suffix(std::span<const std::vector<std::int32_t>> sequences);

}  // namespace muo::data
