#include "data/examples/token_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/check.h"
#include "support/errors.h"

namespace muo::data {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

std::vector<Tokens> rows_of(const TokenTask& task) {
  std::vector<Tokens> out;
  for (const ExampleRow& row : task.rows)
    task.read(row, out.emplace_back());
  return out;
}

TEST(TokenTask, StoresSharedTokensOnce) {
  TokenTask task;
  const std::vector<Tokens> prompts = {{1, 2, 3, 4}, {1, 2, 5}, {1, 2, 5, 6, 7}};
  task.add(prompts, std::vector<std::size_t>{2, 2, 3}, 1, 100, "f");
  EXPECT_EQ(rows_of(task), prompts);
  EXPECT_EQ(task.tokens.size(), 8U);
  EXPECT_EQ(task.rows[0].scored_tokens(), 2);
  EXPECT_EQ(task.rows[1].scored_tokens(), 1);
  EXPECT_EQ(task.rows[2].scored_tokens(), 2);
  EXPECT_EQ(task.cropped, 0);
}

// Crops within the shared tokens, and beyond them.
TEST(TokenTask, CropsBeginnings) {
  TokenTask task;
  const std::vector<Tokens> prompts = {{1, 2, 3, 4, 5}, {1, 2, 6, 7, 8, 9, 10}, {1, 2, 3}};
  task.add(prompts, std::vector<std::size_t>{4, 5, 2}, 0, 4, "f");
  EXPECT_THAT(rows_of(task), ElementsAre(Tokens{2, 3, 4, 5}, Tokens{7, 8, 9, 10}, Tokens{1, 2, 3}));
  EXPECT_EQ(task.rows[0].scored, 3);
  EXPECT_EQ(task.rows[1].scored, 2);
  EXPECT_EQ(task.rows[2].scored, 2);
  EXPECT_EQ(task.cropped, 2);
  EXPECT_THAT(message_of<InputError>([&] {
                task.add(prompts, std::vector<std::size_t>{4, 3, 2}, 0, 4, "file: line 3");
              }),
              HasSubstr("file: line 3: the scored part has 4 tokens, but rows have 4: give "
                        "--row-tokens 5 or more"));
}

TEST(TokenTask, FirstTokensAreNotScored) {
  TokenTask task;
  task.add(std::vector<Tokens>{{1, 2}, {1, 2}}, std::vector<std::size_t>{0, 0}, 1, 9, "f");
  EXPECT_EQ(task.rows[0].scored, 1);
}

TokenTask choices(std::size_t gold, const std::vector<Tokens>& prompts, std::size_t start) {
  TokenTask task{.name = "t"};
  task.add(prompts, std::vector<std::size_t>(prompts.size(), start), gold, 100, "f");
  return task;
}

TEST(TaskScore, ChoosesBySumAndByMean) {
  const TokenTask task = choices(1, {{0, 1}, {0, 2, 3}, {0, 4, 5}}, 1);
  const TaskScore score = score_task(task, std::vector<RowScore>{{3}, {4}, {5}});
  EXPECT_EQ(score.accuracy, 1);
  EXPECT_EQ(score.accuracy_of_sums, 0);
  // The first of equal rows is chosen.
  EXPECT_EQ(score_task(task, std::vector<RowScore>{{2}, {4}, {4}}).accuracy, 0);
  EXPECT_EQ(score_task(task, std::vector<RowScore>{{3}, {4}, {4}}).accuracy, 1);
}

// Equivalent to Python's min() of numbers of which one is NaN.
TEST(TaskScore, RowsWithoutScoreAreChosenIfFirst) {
  const std::vector<Tokens> prompts = {{0, 1}, {0, 1, 2}, {0, 1, 3}};
  const std::vector<RowScore> scores = {{0}, {5}, {4}};
  EXPECT_EQ(score_task(choices(0, prompts, 2), scores).accuracy, 1);
  EXPECT_EQ(score_task(choices(2, prompts, 2), scores).accuracy, 0);
  const std::vector<Tokens> others = {{0, 1, 2}, {0, 1}, {0, 1, 3}};
  EXPECT_EQ(score_task(choices(2, others, 2), std::vector<RowScore>{{5}, {0}, {4}}).accuracy, 1);
  EXPECT_EQ(
      score_task(choices(2, others, 2), std::vector<RowScore>{{5}, {0}, {4}}).accuracy_of_sums, 1);
}

TEST(TaskScore, ContinuationsMustBeRightAsAWhole) {
  TokenTask task{.name = "t", .kind = TaskKind::kContinuation};
  for (int i = 0; i < 4; ++i)
    task.add(std::vector<Tokens>{{0, 1, 2}}, std::vector<std::size_t>{1}, 0, 9, "f");
  const TaskScore score =
      score_task(task, std::vector<RowScore>{{9, true}, {1, false}, {1, false}, {1, false}});
  EXPECT_EQ(score.examples, 4);
  EXPECT_EQ(score.accuracy, 0.25);
}

TEST(TaskScore, RefusesLossesThatAreNotFinite) {
  const TokenTask task = choices(0, {{0, 1}, {0, 2}}, 1);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(message_of<Error>([&] {
                  score_task(task, std::vector<RowScore>{{1}, {bad}});
                }),
                HasSubstr("t: the loss of example 1 is not finite"));
}

TEST(TaskScore, IsCentredByChance) {
  EXPECT_DOUBLE_EQ(centred_accuracy(0.25, 0.25), 0);
  EXPECT_DOUBLE_EQ(centred_accuracy(1, 0.25), 1);
  EXPECT_DOUBLE_EQ(centred_accuracy(0.5, 0), 0.5);
  EXPECT_DOUBLE_EQ(centred_accuracy(0, 0.5), -1);
}

}  // namespace
}  // namespace muo::data
