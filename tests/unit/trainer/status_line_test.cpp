#include "trainer/train/status_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace muo::trainer {
namespace {

TEST(ProgressText, SaysStepLossBitsSpeedAndTime) {
  EXPECT_EQ(progress_text({.done = 12,
                           .iterations = 1000,
                           .loss = 2.0 * std::log(2.0),
                           .bytes_per_token = 0.8,
                           .tokens_per_s = 12345,
                           .step_ms = 250}),
            "step   12/1000  loss 1.3863  2.500 bits/byte  12.3k tokens/s  ETA 4m07s");
  EXPECT_EQ(progress_text({.done = 10, .iterations = 10, .loss = 3, .tokens_per_s = 900}),
            "step 10/10  loss 3.0000  900 tokens/s  ETA 0s");
  EXPECT_EQ(progress_text({.done = 1,
                           .iterations = 2,
                           .loss = std::numeric_limits<double>::quiet_NaN(),
                           .tokens_per_s = 1,
                           .step_ms = 1}),
            "step 1/2  loss nan  1 tokens/s  ETA 0s");
}

TEST(StatusLine, OmitsTheLeastImportantPartsIfNarrow) {
  const TrainingProgress progress{.done = 12,
                                  .iterations = 1000,
                                  .loss = 2.0 * std::log(2.0),
                                  .bytes_per_token = 0.8,
                                  .tokens_per_s = 12345,
                                  .step_ms = 250,
                                  .mfu = 0.413,
                                  .memory = 1500000000};
  const std::string all =
      "[------------]  step   12/1000  loss 1.3863  2.500 bits/byte  12.3k tokens/s  MFU 41 %  "
      "1.50GB  ETA 4m07s";
  EXPECT_EQ(status_line(progress, 200, false), all);
  EXPECT_EQ(status_line(progress, static_cast<int>(all.size()) + 1, false), all);
  EXPECT_EQ(status_line(progress, 80, false),
            "[--------]    12/1000  2.500 bits/byte  12.3k tok/s  MFU 41%  1.50GB  ETA 4m07s");
  EXPECT_EQ(status_line(progress, 60, false), "  12/1000  2.500 bits/byte  12.3k tok/s  ETA 4m07s");
  EXPECT_EQ(status_line(progress, 40, false), "  12/1000  2.500 bits/byte  ETA 4m07s");
  EXPECT_EQ(status_line(progress, 5, false), "  12/1000");
  const TrainingProgress half{.done = 7, .iterations = 14, .loss = 3, .tokens_per_s = 900};
  EXPECT_EQ(status_line(half, 80, false),
            "[######------]  step  7/14  loss 3.0000  900 tokens/s  ETA 0s");
  // The width counts columns, not bytes.
  const std::string bar = "██████░░░░░░  step  7/14  loss 3.0000  900 tokens/s  ETA 0s";
  EXPECT_EQ(status_line(half, 60, true), bar);
  EXPECT_NE(status_line(half, 59, true), bar);
}

}  // namespace
}  // namespace muo::trainer
