#include "trainer/options/foreign_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muo::trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ForeignOptions, MatchTheDocument) {
  EXPECT_EQ(foreign_option("--n-layer"),
            "nanoGPT's, here --depth: --model plain is nearest to its GPT");
  EXPECT_THAT(foreign_option("--model-tag"), StartsWith("nanochat's, here --out DIR"));
  EXPECT_EQ(foreign_option("-b"), "llm.c's, here --device-batch-size");
  EXPECT_THAT(foreign_option("-l"), StartsWith("llm.c's, here --matrix-lr, --embedding-lr, "));
  EXPECT_THAT(foreign_option("--run"), HasSubstr("scripts/watch_wandb.py RUN: "));
  EXPECT_EQ(foreign_option("--fp8"),
            "nanochat's, which has no counterpart here: bf16 is the smallest");
  EXPECT_THAT(foreign_option("--epochs"), StartsWith("here --num-iterations: steps; the line hor"));
  EXPECT_EQ(foreign_option("serve"),
            "here checkpoint export RUN --hf-code DIR: there is no server; transformers, and what "
            "builds on it, loads the export");
  EXPECT_THAT(foreign_option("finetune"), StartsWith("here train --init-from RUN: "));
  EXPECT_EQ(foreign_option("--depth"), "");  // the same name here
  EXPECT_EQ(foreign_option("--"), "");
  EXPECT_EQ(foreign_option("--unheard-of"), "");
}

}  // namespace
}  // namespace muo::trainer
