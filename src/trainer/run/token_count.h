#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muo::trainer {

// Counts a run's tokens from its start. The batch may change during the run, and by resuming it, so
// the tokens of steps before `first_step` are taken from the checkpoint.
struct TokenCount {
  struct Stage {
    std::int64_t from = 0, tokens = 0;  // of each step from this step on
  };
  std::int64_t first_step = 0, trained = 0;  // `trained`: tokens before that step
  std::vector<Stage> stages = {Stage{}};     // in order; the first is from step 0

  [[nodiscard]] std::int64_t of_step(std::int64_t step) const {
    std::size_t i = stages.size() - 1;
    while (i > 0 && stages[i].from > step)
      --i;
    return stages[i].tokens;
  }
  // Tokens of steps begin to end - 1. As a double for numbers of steps that may not be trained.
  template <class Number = std::int64_t>
  [[nodiscard]] Number between(std::int64_t begin, std::int64_t end) const {
    Number sum = 0;
    for (std::size_t i = stages.size(); i-- > 0 && end > begin;) {
      const std::int64_t from = stages[i].from > begin ? stages[i].from : begin;
      if (from >= end) continue;
      sum += static_cast<Number>(end - from) * static_cast<Number>(stages[i].tokens);
      end = from;
    }
    return sum;
  }
  // The mean tokens of the steps after `step`, up to `iterations`, relative to those of `step`.
  [[nodiscard]] double relative_after(std::int64_t step, std::int64_t iterations) const {
    const auto left = static_cast<double>(iterations - step - 1);
    if (stages.size() == 1 || left <= 0) return 1;
    return between<double>(step + 1, iterations) / (left * static_cast<double>(of_step(step)));
  }
  // Tokens before `step`; step >= first_step.
  [[nodiscard]] std::int64_t before(std::int64_t step) const {
    return trained + between(first_step, step);
  }
};

}  // namespace muo::trainer
