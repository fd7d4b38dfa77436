#include "kit/sweep/search_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "support/errors.h"
#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::optional<trainer::Axis> parse_all(std::string_view option,
                                       const std::vector<std::string>& texts) {
  trainer::TrainOptions options;
  const std::vector<trainer::OptionRow> rows = trainer::option_table(options);
  const auto row = std::ranges::find(rows, option, &trainer::OptionRow::name);
  return parse_axis(*row, texts, "--" + std::string(option));
}
std::optional<trainer::Axis> parse(std::string_view option, const std::string& text) {
  return parse_all(option, {text});
}
std::string error_of(std::string_view option, const std::string& text) {
  return test::message_of<InputError>([&] { static_cast<void>(parse(option, text)); });
}

std::vector<std::string> texts_of(const std::vector<Point>& points) {
  std::vector<std::string> out;
  for (const Point& point : points) {
    std::string& text = out.emplace_back();
    for (const Setting& setting : point)
      text += (text.empty() ? "" : " ") + setting.value;
  }
  return out;
}

TEST(SearchSpace, ReadsListsRangesAndLogarithms) {
  EXPECT_THAT(parse("weight-decay", "0, 0.1 ,0.28")->values, ElementsAre("0", "0.1", "0.28"));
  EXPECT_THAT(parse_all("weight-decay", {"0", "0.1"})->values, ElementsAre("0", "0.1"));
  EXPECT_THAT(parse("strategy", "ddp,balanced")->values, ElementsAre("ddp", "balanced"));
  EXPECT_THAT(parse("depth", "2..4")->values, ElementsAre("2", "3", "4"));
  EXPECT_THAT(parse("warmup-steps", "10..40/4")->values, ElementsAre("10", "20", "30", "40"));
  EXPECT_THAT(parse("matrix-lr", "log:0.001..0.1/3")->values, ElementsAre("0.001", "0.01", "0.1"));
  EXPECT_THAT(parse("target-batch-size", "log:1024..8192/4")->values,
              ElementsAre("1024", "2048", "4096", "8192"));
  const trainer::Axis log = *parse("matrix-lr", "log:0.01..1");
  EXPECT_FALSE(log.is_finite());
  EXPECT_DOUBLE_EQ(value_at(log, 0.5), 0.1);
  EXPECT_DOUBLE_EQ(value_at(*parse("matrix-lr", "0.1..0.3"), 0.5), 0.2);
}

TEST(SearchSpace, LeavesSingleValuesAndPathsAlone) {
  EXPECT_FALSE(parse("matrix-lr", "0.02"));
  EXPECT_FALSE(parse("data", "a,b.txt"));
  EXPECT_FALSE(parse("gemm-table", "../x,y"));
  EXPECT_FALSE(parse("out", "a..b"));
  EXPECT_FALSE(parse("strategy", "ddp..balanced"));
}

TEST(SearchSpace, RejectsInvalidValuesInOneLine) {
  EXPECT_THAT(error_of("matrix-lr", "log:0..1"), HasSubstr("needs numbers above 0"));
  EXPECT_THAT(error_of("matrix-lr", "0.1,"), HasSubstr("--matrix-lr: a value of the list"));
  EXPECT_THAT(error_of("matrix-lr", "1,1"), HasSubstr("1 is given twice"));
  EXPECT_THAT(error_of("matrix-lr", "1..x"), HasSubstr("'x' is not a number"));
  EXPECT_THAT(error_of("matrix-lr", "2..1"), HasSubstr("not below"));
  EXPECT_THAT(error_of("matrix-lr", "0.1..1e9"), HasSubstr("out of range"));
  EXPECT_THAT(error_of("matrix-lr", "1..2/1"), HasSubstr("from 2 to"));
  EXPECT_THAT(error_of("strategy", "log:1..2"), HasSubstr("is not a number"));
  EXPECT_THAT(error_of("strategy", "ddp,none"), HasSubstr("'none' is unknown"));
  EXPECT_THAT(error_of("seed", "1..1000000"), HasSubstr("at most 10000"));
  EXPECT_THAT(error_of("depth", "2.5,3"), HasSubstr("whole number"));
  EXPECT_THAT(test::message_of<InputError>([] {
                static_cast<void>(parse_all("save-every", {"10", "20"}));
              }),
              HasSubstr("cannot vary"));
  EXPECT_THAT(test::message_of<InputError>([] { static_cast<void>(parse_all("depth", {})); }),
              HasSubstr("missing"));
}

TEST(SearchSpace, InAGridTheSeedVariesFastestThenTheLastAxis) {
  const std::vector<trainer::Axis> axes = {*parse("seed", "1,2"), *parse("matrix-lr", "0.1,0.2"),
                                           *parse("weight-decay", "0,1")};
  EXPECT_THAT(texts_of(choose_points(axes, {}, 0)),
              ElementsAre("0.1 0 1", "0.1 0 2", "0.1 1 1", "0.1 1 2", "0.2 0 1", "0.2 0 2",
                          "0.2 1 1", "0.2 1 2"));
  EXPECT_EQ(choose_points({}, {}, 0).size(), 1U);
}

TEST(SearchSpace, DrawsDistinctCellsAndLargerDrawsBeginWithTheSame) {
  const std::vector<trainer::Axis> axes = {*parse("matrix-lr", "0.1..1/10"),
                                           *parse("depth", "1..10")};
  const std::vector<std::string> all = texts_of(choose_points(axes, 100, 3));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 100U);
  const std::vector<std::string> some = texts_of(choose_points(axes, 40, 3));
  EXPECT_EQ(std::set<std::string>(some.begin(), some.end()).size(), 40U);
  const std::vector<std::string> fewer = texts_of(choose_points(axes, 20, 3));
  EXPECT_TRUE(std::ranges::equal(fewer, std::span(some).first(20)));
  EXPECT_NE(texts_of(choose_points(axes, 40, 4)), some);
}

// The count of an event of probability p in 3,000 draws is within 5 standard deviations of 3000 p.
TEST(SearchSpace, RandomValuesAreUniformOnTheirScaleWithinTheEnds) {
  const std::vector<trainer::Axis> axes = {*parse("matrix-lr", "log:0.001..1"),
                                           *parse("weight-decay", "0..1"),
                                           *parse("depth", "1,2,3")};
  constexpr int kDraws = 3000;
  int low_rate = 0, low_decay = 0, depth_two = 0;
  for (const Point& point : choose_points(axes, kDraws, 0)) {
    const double rate = std::stod(point[0].value), decay = std::stod(point[1].value);
    ASSERT_GE(rate, 0.001);
    ASSERT_LE(rate, 1);
    ASSERT_GE(decay, 0);
    ASSERT_LE(decay, 1);
    low_rate += rate < 0.01 ? 1 : 0;
    low_decay += decay < 1.0 / 3 ? 1 : 0;
    depth_two += point[2].value == "2" ? 1 : 0;
  }
  const double margin = 5 * std::sqrt(kDraws * (1.0 / 3) * (2.0 / 3));
  for (const int count : {low_rate, low_decay, depth_two})
    EXPECT_NEAR(count, kDraws / 3.0, margin);
}

TEST(SearchSpace, EverySeedIsTriedAtEachRandomPoint) {
  const std::vector<trainer::Axis> axes = {*parse("seed", "5,6,7"),
                                           *parse("matrix-lr", "0.1..0.2")};
  const std::vector<Point> points = choose_points(axes, 6, 0);
  ASSERT_EQ(points.size(), 6U);
  EXPECT_EQ(points[0][0], points[2][0]);
  EXPECT_NE(points[0][0], points[3][0]);
  EXPECT_EQ(points[4][1], (Setting{"seed", "6"}));
}

TEST(SearchSpace, TrialsThatDoNotFitAreRefused) {
  const auto error = [](const std::vector<trainer::Axis>& axes,
                        std::optional<std::int64_t> trials) {
    return test::message_of<InputError>([&] { static_cast<void>(choose_points(axes, trials, 0)); });
  };
  const trainer::Axis range = *parse("matrix-lr", "log:0.1..1"), seeds = *parse("seed", "1,2"),
                      depths = *parse("depth", "1..9"), many = *parse("warmup-steps", "1..9000");
  EXPECT_THAT(error({range}, {}), HasSubstr("give the number of trials, or log:A..B/N"));
  EXPECT_THAT(error({range, seeds}, 3), HasSubstr("a multiple of 2"));
  EXPECT_THAT(error({depths}, 10), HasSubstr("the grid has only 9"));
  EXPECT_THAT(error({depths, many}, {}), HasSubstr("more than 10000: give --trials"));
}

TEST(SearchSpace, ReportsABestValueAtAnEdge) {
  const auto note = [](std::string_view option, const std::string& text, const std::string& best) {
    return edge_note(*parse(option, text), best);
  };
  EXPECT_EQ(note("matrix-lr", "0.02,0.08,0.01", "0.08"),
            "best at the edge of --matrix-lr 0.01..0.08: try larger values");
  EXPECT_EQ(note("warmup-steps", "1k,2k,4k", "1k"),
            "best at the edge of --warmup-steps 1000..4000: try smaller values");
  EXPECT_EQ(note("matrix-lr", "log:0.01..1", "0.7"),
            "best at the edge of --matrix-lr 0.01..1: try larger values");
  EXPECT_EQ(note("matrix-lr", "log:0.01..1", "0.5"), "");
  EXPECT_EQ(note("matrix-lr", "0.02,0.08,0.01", "0.02"), "");
  EXPECT_EQ(note("matrix-lr", "0.02,0.08", "0.08"), "") << "two values are not a range";
  EXPECT_EQ(note("weight-decay", "0,0.1,0.2", "0"), "") << "the option allows no smaller value";
  EXPECT_EQ(note("warmdown-ratio", "0.4..1", "0.98"), "");
  EXPECT_EQ(note("seed", "1..3", "3"), "");
  EXPECT_EQ(note("strategy", "ddp,balanced,stacked", "ddp"), "");
}

}  // namespace
}  // namespace muo::kit
