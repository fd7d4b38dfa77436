#include "data/examples/token_task.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"

namespace muo::data {
namespace {

using Sequences = std::span<const std::vector<std::int32_t>>;

// `at(sequence, i)` is the i-th token to compare.
template <class At>
std::size_t common_length(Sequences sequences, const At& at) {
  std::size_t length = sequences.front().size();
  for (const auto& sequence : sequences)
    length = std::min(length, sequence.size());
  for (std::size_t i = 0; i < length; ++i)
    for (const auto& sequence : sequences)
      if (at(sequence, i) != at(sequences.front(), i)) return i;
  return length;
}

// Returns the first row of an example with the least `value(row)`.
template <class Value>
std::size_t least(const TokenTask::Example& example, const Value& value) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < example.rows; ++i)
    if (value(example.first_row + i) < value(example.first_row + best)) best = i;
  return best;
}

}  // namespace

std::size_t common_prefix(Sequences sequences) {
  return common_length(sequences, [](const auto& s, std::size_t i) { return s[i]; });
}

std::size_t common_suffix(Sequences sequences) {
  return common_length(sequences, [](const auto& s, std::size_t i) { return s[s.size() - 1 - i]; });
}

void TokenTask::add(Sequences prompts, std::span<const std::size_t> starts, std::size_t gold,
                    std::int64_t row_tokens, const std::string& where) {
  MUO_CHECK(!prompts.empty() && prompts.size() == starts.size() && gold < prompts.size());
  const auto most = static_cast<std::size_t>(row_tokens);
  const std::size_t common = common_prefix(prompts);
  const std::size_t shared = tokens.size();
  examples.push_back({.first_row = rows.size(), .rows = prompts.size(), .gold = gold});
  tokens.insert(tokens.end(), prompts.front().begin(),
                prompts.front().begin() + static_cast<std::ptrdiff_t>(common));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<std::int32_t>& prompt = prompts[i];
    const std::size_t start = std::max<std::size_t>(starts[i], 1);
    const std::size_t crop = prompt.size() > most ? prompt.size() - most : 0;
    if (start <= crop)
      throw InputError(concat(where, ": the scored part has ", prompt.size() - start,
                              " tokens, but rows have ", most, ": give --row-tokens ",
                              prompt.size() - start + 1, " or more"));
    const std::size_t of_shared = std::min(crop, common);
    const std::size_t own = tokens.size();
    tokens.insert(tokens.end(),
                  prompt.begin() + static_cast<std::ptrdiff_t>(common + crop - of_shared),
                  prompt.end());
    rows.push_back({.shared = shared + of_shared,
                    .own = own,
                    .shared_length = static_cast<std::int32_t>(common - of_shared),
                    .own_length = static_cast<std::int32_t>(tokens.size() - own),
                    .scored = static_cast<std::int32_t>(start - crop)});
    cropped += crop > 0 ? 1 : 0;
  }
}

void TokenTask::read(const ExampleRow& row, std::vector<std::int32_t>& out) const {
  const auto append = [&](std::size_t begin, std::int32_t length) {
    const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    out.insert(out.end(), from, from + length);
  };
  append(row.shared, row.shared_length);
  append(row.own, row.own_length);
}

TaskScore score_task(const TokenTask& task, std::span<const RowScore> rows) {
  MUO_CHECK(rows.size() == task.rows.size(), rows.size(), " scores for ", task.rows.size(),
            " rows");
  std::int64_t right = 0, right_by_sum = 0;
  const auto mean = [&](std::size_t i) {  // NaN without scored tokens
    return rows[i].nats / static_cast<double>(task.rows[i].scored_tokens());
  };
  const auto sum = [&](std::size_t i) {
    return task.rows[i].scored_tokens() > 0 ? rows[i].nats
                                            : std::numeric_limits<double>::quiet_NaN();
  };
  for (std::size_t k = 0; k < task.examples.size(); ++k) {
    const TokenTask::Example& example = task.examples[k];
    for (std::size_t i = 0; i < example.rows; ++i)
      if (!std::isfinite(rows[example.first_row + i].nats))
        throw Error(concat(task.name, ": the loss of example ", k + 1, " is not finite"));
    if (task.kind == TaskKind::kContinuation) {
      right += rows[example.first_row].all_predicted ? 1 : 0;
      continue;
    }
    right += least(example, mean) == example.gold ? 1 : 0;
    right_by_sum += least(example, sum) == example.gold ? 1 : 0;
  }
  const auto count = static_cast<double>(task.examples.size());
  if (task.kind == TaskKind::kContinuation) right_by_sum = right;
  return {.examples = std::ssize(task.examples),
          .accuracy = static_cast<double>(right) / count,
          .accuracy_of_sums = static_cast<double>(right_by_sum) / count};
}

double centred_accuracy(double accuracy, double baseline) {
  return (accuracy - baseline) / (1 - baseline);
}

}  // namespace muo::data
