// --recompute: backward makes activations again that forward did not keep, in the same operations.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graphs/run_state.h"
#include "support/sanitized.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyTraining;

std::string text(const ToyTraining& run) {
  return std::to_string(run.recompute.blocks) + " blocks, " + std::to_string(run.recompute.mlps) +
         " MLPs" + (run.nanochat_bf16 ? ", bf16" : "");
}

// For some layers and for all, with a stream per block and with a shared one.
TEST(Recompute, IsBitwiseTheSame) {
  for (const bool bf16 : {false, true})
    for (const std::int64_t accumulation : {1, 2}) {
      if (test::kSanitized && bf16 != (accumulation == 2)) continue;
      ToyTraining run{.world = 2,
                      .accumulation = accumulation,
                      .steps = test::kSanitized ? 2 : 4,
                      .nanochat_bf16 = bf16};
      const test::ToyCurves want = test::train(run);
      for (const model::Recompute recompute : {model::Recompute{.blocks = 0, .mlps = 1},
                                               {.mlps = 3},
                                               {.blocks = 1, .mlps = 1},
                                               {.blocks = 2},
                                               {.blocks = 3}}) {
        run.recompute = recompute;
        expect_bitwise_in_every_form(run, want, text(run));
        run.nan_between_steps = true;
        expect_bitwise(test::train(run), want, text(run) + ", NaN between steps");
        run.nan_between_steps = false;
      }
    }
}

// A recomputed layer keeps only its input, of one row's width, others more than ten of that size;
// the sets for a forward and a backward pass have the size of two layers'.
TEST(Recompute, KeepsOnlyTheInputsOfBlocks) {
  const auto bytes = [](std::int64_t layers, const model::Recompute& recompute) {
    trainer::RunConfig config = test::toy_config({});
    config.model.n_layer = layers;
    config.step.recompute = recompute;
    const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
    const MemoryPlan plan =
        plan_rank_memory(config, params, trainer::make_sharding_plan(config, params), 0);
    return plan.category_bytes(MemoryCategory::kActivations);
  };
  const auto per_layer = [&](const model::Recompute& of_12, const model::Recompute& of_4) {
    return (bytes(12, of_12) - bytes(4, of_4)) / 8;
  };
  const trainer::RunConfig config = test::toy_config({});
  const std::int64_t rows = config.step.batch * config.model.seq_len;
  const std::int64_t width = rows * config.model.n_embd * size_of(config.model.dtype);
  const std::int64_t kept = per_layer({}, {});
  const std::int64_t without_hidden = per_layer({.mlps = 12}, {.mlps = 4});
  EXPECT_NEAR(static_cast<double>(kept - without_hidden), static_cast<double>(4 * width),
              static_cast<double>(kAlignment));
  EXPECT_NEAR(static_cast<double>(per_layer({.blocks = 12}, {.blocks = 4})),
              static_cast<double>(width), static_cast<double>(kAlignment));
}

}  // namespace
}  // namespace muo::graphs
