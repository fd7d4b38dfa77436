#include "base/duration.h"

#include <gtest/gtest.h>

#include <string>

namespace muo::test {
namespace {

TEST(Duration, ParsesUnitsFromTheLargestToTheSmallest) {
  const auto seconds = [](const char* text) { return parse_duration(text).value().seconds; };
  EXPECT_EQ(seconds("90"), 90);
  EXPECT_EQ(seconds("0.5"), 0.5);
  EXPECT_EQ(seconds("90s"), 90);
  EXPECT_EQ(seconds("5m"), 300);
  EXPECT_EQ(seconds("1.5h"), 5400);
  EXPECT_EQ(seconds("1h30m"), 5400);
  EXPECT_EQ(seconds("2d3h4m5s"), 2 * 86400 + 3 * 3600 + 4 * 60 + 5);
}

TEST(Duration, RefusesTextThatIsNotATime) {
  for (const char* text : {"", "0", "0s", "-5", "-5m", "m", "5 m", "5min", "5m30", "30s1h", "5m5m",
                           "1e3", "nan", "inf", "5x", "2000000000"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Duration, TextIsParsedBack) {
  EXPECT_EQ(to_text({90}), "1m30s");
  EXPECT_EQ(to_text({300}), "5m");
  EXPECT_EQ(to_text({86401}), "1d1s");
  EXPECT_EQ(to_text({0.1}), "0.1s");
  for (const double seconds : {0.1, 1.0, 59.75, 60.0, 3599.0, 1e9, 1.0 / 3})
    EXPECT_EQ(parse_duration(to_text({seconds})).value().seconds, seconds);
}

}  // namespace
}  // namespace muo::test
