#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace muo::trainer {

// Tokens per step, which may change during a run: "524288", or "32768@0,131072@200,524288@0.5".
struct BatchSizes {
  struct Stage {
    std::int64_t tokens = 1;
    // The stage begins at this step, or at this share of the run's steps.
    std::int64_t step = 0;
    std::optional<double> share = {};

    bool operator==(const Stage&) const = default;
  };
  std::vector<Stage> stages;  // at least one; the first begins at step 0

  BatchSizes() = default;
  BatchSizes(std::int64_t tokens)  // NOLINT(google-explicit-constructor): one size for all steps
      : stages{{.tokens = tokens}} {}

  bool operator==(const BatchSizes&) const = default;
};

}  // namespace muo::trainer
