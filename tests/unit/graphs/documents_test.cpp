// Training on documents, whose bounds are part of each batch.
#include <gtest/gtest.h>

#include <string>

#include "graphs/run_state.h"
#include "support/sanitized.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyTraining;

// A replay uses the documents of its own batch; so do recomputed blocks.
TEST(DocumentsInTraining, AreBitwiseTheSameInEveryForm) {
  for (const bool bf16 : {false, true})
    for (const std::int64_t accumulation : {1, 2}) {
      if (test::kSanitized && bf16 != (accumulation == 2)) continue;
      ToyTraining run{.world = 2,
                      .accumulation = accumulation,
                      .steps = test::kSanitized ? 2 : 4,
                      .nanochat_bf16 = bf16,
                      .document_token = 7};
      run.graph = false;
      const test::ToyCurves want = test::train(run);
      for (const model::Recompute recompute :
           {model::Recompute{}, {.mlps = 3}, {.blocks = 1, .mlps = 1}}) {
        run.recompute = recompute;
        const std::string what = std::to_string(accumulation) + " micro-steps, " +
                                 std::to_string(recompute.blocks) + " blocks made again" +
                                 (bf16 ? ", bf16" : "");
        expect_bitwise_in_every_form(run, want, what);
        run.nan_between_steps = true;
        expect_bitwise(test::train(run), want, what + ", NaN between steps");
        run.nan_between_steps = false;
      }
      run.document_token = -1;
      EXPECT_NE(test::train(run).losses, want.losses);
    }
}

}  // namespace
}  // namespace muo::graphs
