#include "kit/progress_text.h"

#include <gtest/gtest.h>

namespace muo::kit {
namespace {

TEST(ProgressText, OfTokenizingAssumesTheRateSoFar) {
  TokenizeProgress progress{.tokens = 20'000'000,
                            .shards = 2,
                            .input_bytes = 400'000'000,
                            .taken = 100'000'000,
                            .text_bytes = 90'000'000,
                            .seconds = 60};
  EXPECT_EQ(progress_text(progress), " 25 %  20.0M tokens, 2 shards, 1.5 MB/s of text  ETA 3m00s");
  // Rereading text that is already encoded takes almost no time.
  progress.held = 80'000'000;
  progress.text_bytes = 18'000'000;
  EXPECT_EQ(progress_text(progress), " 25 %  20.0M tokens, 2 shards, 0.3 MB/s of text  ETA 15m00s");
  progress.held = progress.taken;
  progress.text_bytes = 0;
  progress.seconds = 0;
  EXPECT_EQ(progress_text(progress), " 25 %  20.0M tokens, 2 shards  ETA ?");
  progress.input_bytes = 0;
  EXPECT_EQ(progress_text(progress), "20.0M tokens, 2 shards");
}

TEST(ProgressText, OfExamplesAssumesTheRateSoFar) {
  EXPECT_EQ(progress_text({.task = "hellaswag", .done = 3000, .rows = 12000, .seconds = 60}),
            " 25 %  hellaswag  50 rows/s  ETA 3m00s");
}

}  // namespace
}  // namespace muo::kit
