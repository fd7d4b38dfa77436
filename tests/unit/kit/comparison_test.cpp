#include "kit/sweep/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kit/report/run_groups.h"

namespace muo::kit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Values of scipy.stats.t.
TEST(StudentT, AgreesWithScipy) {
  struct Row {
    double t;
    int freedom;
    double p;
  };
  for (const Row& row :
       {Row{1, 1, 0.5}, Row{2.5, 2, 0.12961172022151082}, Row{3.1, 3, 0.05329554461433608},
        Row{2, 7, 0.08561932856297605}, Row{2, 30, 0.054625044962983094},
        Row{40, 3, 3.4380680789158506e-05}, Row{0, 5, 1}}) {
    EXPECT_NEAR(two_sided_p(row.t, row.freedom), row.p, 1e-14);
    EXPECT_EQ(two_sided_p(-row.t, row.freedom), two_sided_p(row.t, row.freedom));
  }
  for (const Row& row : {Row{12.706204736174705, 1, 0.05}, Row{3.1824463052837086, 3, 0.05},
                         Row{2.2281388519862753, 10, 0.05}, Row{12.923978636687481, 3, 0.001},
                         Row{3.8219733888635394, 15, 0.05 / 30}, Row{15.767009437482583, 7, 1e-6}})
    EXPECT_NEAR(critical_t(row.p, row.freedom) / row.t, 1, 1e-9);
}

TEST(PairedTest, IsStudents) {
  const std::vector<double> differences = {-0.012, -0.009, -0.015, -0.004};
  const PairedTest test = paired_test(differences, 0.05);  // scipy.stats.ttest_1samp
  EXPECT_EQ(test.pairs, 4);
  EXPECT_NEAR(test.mean, -0.01, 1e-15);
  EXPECT_NEAR(test.p, 0.0236632993749433, 1e-12);
  EXPECT_NEAR(test.low, -0.017463498152547274, 1e-12);
  EXPECT_NEAR(test.high, -0.0025365018474527243, 1e-12);
  EXPECT_EQ(test.judgement, Judgement::kLower);
  EXPECT_EQ(paired_test(differences, 0.02).judgement, Judgement::kUndecided);
  EXPECT_EQ(pairs_needed(test, 0.02), 5);
  EXPECT_EQ(pairs_needed(test, 0.05), 4);
  std::vector<double> higher;
  for (const double each : differences)
    higher.push_back(-each);
  EXPECT_EQ(paired_test(higher, 0.05).judgement, Judgement::kHigher);
}

TEST(PairedTest, OfFewOrEqualPairs) {
  const PairedTest one = paired_test(std::vector{0.5}, 0.05);
  EXPECT_EQ(one.mean, 0.5);
  EXPECT_EQ(one.judgement, Judgement::kUndecided);
  EXPECT_TRUE(std::isinf(one.low) && std::isinf(one.high));
  EXPECT_FALSE(pairs_needed(one, 0.05));
  const PairedTest same = paired_test(std::vector{0.0, 0.0, 0.0}, 0.05);
  EXPECT_EQ(same.p, 1);
  EXPECT_EQ(same.judgement, Judgement::kUndecided);
  EXPECT_FALSE(pairs_needed(same, 0.05));
  EXPECT_EQ(paired_test(std::vector{0.5, 0.5}, 0.05).judgement, Judgement::kHigher);
  EXPECT_EQ(paired_test({}, 0.05).pairs, 0);
}

// Tests of equal points find a difference with probability alpha.
TEST(PairedTest, KeepsItsLevel) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise;
  for (const std::size_t pairs : {2, 4, 9}) {
    constexpr int kTests = 20'000;
    int judged = 0;
    for (int i = 0; i < kTests; ++i) {
      std::vector<double> differences(pairs);
      for (double& each : differences)
        each = noise(random);
      judged += paired_test(differences, 0.05).judgement != Judgement::kUndecided ? 1 : 0;
    }
    EXPECT_NEAR(judged / double{kTests}, 0.05, 5 * std::sqrt(0.05 * 0.95 / kTests)) << pairs;
  }
}

TEST(GroupComparison, PairsRunsBySeed) {
  const std::vector<RunGroup> groups = {
      {.name = "a", .scores = {{"1", 2.0}, {"2", 2.5}, {"3", 3.0}}},
      {.name = "b", .scores = {{"2", 2.4}, {"3", 2.9}, {"4", 9.0}}},
      {.name = "c", .scores = {{"1", 1.0}}}};
  const GroupComparison given = compare_groups("loss", groups, 0.95, Baseline::kGiven);
  EXPECT_NEAR(given.alpha, 0.025, 1e-15);
  ASSERT_EQ(given.tests.size(), 2);
  EXPECT_EQ(given.tests[0].pairs, 2);
  EXPECT_NEAR(given.tests[0].mean, -0.1, 1e-12);
  EXPECT_EQ(given.tests[1].pairs, 1);
  EXPECT_EQ(comparison_text(given),
            "     seeds  held-out loss  difference     97.5 % interval  p"
            "                                           \n"
            "  a      3         2.5000"
            "                                               the others are compared with it\n"
            "  b      3         4.7667     -0.1000  -0.1000 to -0.1000  0"
            "                                     better\n"
            "  c      1         1.0000     -1.0000                   -  -"
            "  not told apart: needs two seeds in common\n"
            "better, worse: p below 0.025, as there are several comparisons\n");
  const GroupComparison best = compare_groups("loss", groups, 0.95, Baseline::kBest);
  EXPECT_EQ(best.groups.front().name, "c");
  EXPECT_NEAR(best.alpha, 0.05 / 3, 1e-15);
  const auto json = nlohmann::json::parse(comparison_json(given));
  EXPECT_EQ(json["groups"][1]["pairs"], 2);
  EXPECT_EQ(json["groups"][2]["judgement"], "not told apart");
  EXPECT_FALSE(json["groups"][2].contains("interval"));
}

RunSummary run_of(const std::string& name, const std::string& lr, const std::string& seed,
                  double held_out) {
  return {.name = name,
          .options = {{"out", name},
                      {"matrix-lr", lr},
                      {"seed", seed},
                      {"num-iterations", "10"},
                      {"time-budget", "auto"}},
          .unit = "loss",
          .steps = 10,
          .evaluated = 10,
          .last = held_out};
}

TEST(RunGroups, LeavesOutRunsThatCannotBeCompared) {
  RunSummary early = run_of("early", "0.1", "3", 1), blind = run_of("blind", "0.1", "4", 1);
  early.steps = early.evaluated = 5;
  blind.evaluated = 9;
  std::vector<std::string> notes;
  std::vector<RunSummary> runs = {
      run_of("a", "0.1", "1", 2), run_of("b", "0.2", "1", 3), early, blind,
      run_of("c", "0.1", "2", 4), run_of("d", "0.1", "2", 5)};
  const std::vector<RunGroup> groups = group_runs(runs, notes);
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].name, "matrix-lr 0.1");
  EXPECT_EQ(groups[0].scores, (std::map<std::string, double>{{"1", 2}, {"2", 4}}));
  EXPECT_EQ(groups[0].mean(), 3);
  EXPECT_EQ(groups[1].scores.size(), 1);
  EXPECT_THAT(notes, ElementsAre("early is left out: it ended early, at step 5",
                                 "blind is left out: it has no evaluation at its last step",
                                 "d is left out: it repeats seed 2 of matrix-lr 0.1"));
  notes.clear();
  EXPECT_EQ(one_group(std::vector{runs[0], runs[4]}, notes).name, "a and 1 more");
  // A time ends at some step.
  for (RunSummary* run : {&runs[0], &runs[1]}) {
    run->options[3].second = "auto";
    run->options[4].second = "1m40s";
  }
  runs.resize(2);
  runs[0].seconds = 99.8;
  runs[1].seconds = 50;
  EXPECT_EQ(group_runs(runs, notes).size(), 1);
  EXPECT_THAT(notes, ElementsAre("b is left out: it ended early, at step 10"));
}

}  // namespace
}  // namespace muo::kit
