#include "app/report/run_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"

namespace muo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string train(int step, double loss, const std::string& more = "") {
  return R"({"kind":"train","step":)" + std::to_string(step) + R"(,"tokens":)" +
         std::to_string((step + 1) * 100) + R"(,"loss":)" + std::to_string(loss) +
         R"(,"step_ms":20)" + more + "}\n";
}

class ReadRun : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    test::write_file(directory_.path() / name, text);
  }
  [[nodiscard]] RunHistory read() const { return read_run(directory_.path()); }

  test::TemporaryDirectory directory_;
};

TEST_F(ReadRun, TakesEveryKindOfRecord) {
  write("config.toml", "# a run\ndepth = 4\ndata = [\"a.txt\", \"b.txt\"]\n");
  write("run.json", R"({"world":2})");
  write("metrics.jsonl",
        train(0, 5) + R"({"kind":"eval","step":0,"val_loss":5.5,"val_bpb":null})" + "\n" +
            train(1, 4, R"(,"skipped":"nonfinite","bad_number":"w[3] on rank 1","mfu":null)") +
            train(2, 3, R"(,"gradient_scale":0.5)") +
            R"({"kind":"sample","step":3,"text":"one\ntwo"})" + "\n" +
            R"({"kind":"alarm","step":2,"alarm":"data","text":"steps wait"})" + "\n" +
            R"({"kind":"of the future","step":3})" + "\n");
  const RunHistory run = read();
  EXPECT_THAT(run.options,
              ElementsAre(testing::Pair("depth", "4"), testing::Pair("data", "a.txt, b.txt")));
  EXPECT_EQ(run.facts, R"({"world":2})");
  EXPECT_THAT(run.step, ElementsAre(0, 1, 2));
  EXPECT_THAT(run.tokens, ElementsAre(100, 200, 300));
  EXPECT_THAT(run.of(Series::kLoss), ElementsAre(5, 4, 3));
  EXPECT_THAT(run.of(Series::kStepMs), ElementsAre(20, 20, 20));
  EXPECT_THAT(run.of(Series::kMfu), testing::Each(testing::IsNan()));
  ASSERT_EQ(run.skipped.size(), 1U);
  EXPECT_EQ(run.skipped[0].step, 1);
  EXPECT_EQ(run.skipped[0].why, "nonfinite");
  EXPECT_EQ(run.skipped[0].bad_number, "w[3] on rank 1");
  EXPECT_THAT(run.clipped, ElementsAre(2));
  EXPECT_THAT(run.gradient_scale, ElementsAre(0.5));
  EXPECT_THAT(run.val_loss, ElementsAre(5.5));
  EXPECT_THAT(run.val_bpb, ElementsAre(testing::IsNan()));
  ASSERT_EQ(run.samples.size(), 1U);
  EXPECT_EQ(run.samples[0].text, "one\ntwo");
  ASSERT_EQ(run.alarms.size(), 1U);
  EXPECT_EQ(run.alarms[0].step, 2);
  EXPECT_EQ(run.alarms[0].kind + ": " + run.alarms[0].text, "data: steps wait");
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(ReadRun, OfAnOlderVersionOrWithoutStepsIsRead) {
  write("config.toml", "depth = 4\n");
  const RunHistory run = read();
  EXPECT_TRUE(run.step.empty());
  EXPECT_EQ(run.facts, "");
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(ReadRun, NotesWhatIsDamagedAndReadsTheRest) {
  write("config.toml", "depth = = 4\n");
  write("run.json", "[1]");
  write("metrics.jsonl", train(0, 5) + "not a record\n{\"kind\":\"train\",\"step\":-1}\n" +
                             "{\"kind\":\"train\",\"step\":1e999}\n"
                             "{\"kind\":\"train\",\"step\":9223372036854775807}\n" +
                             train(1, 4) + R"({"kind":"train","step":2,"lo)");
  const RunHistory run = read();
  EXPECT_THAT(run.step, ElementsAre(0, 1));
  EXPECT_THAT(run.notes,
              ElementsAre(HasSubstr("config.toml:1: "), "run.json: not a JSON object: left out",
                          "metrics.jsonl: 4 lines are no records, the first is line 2: left out",
                          "metrics.jsonl: line 7, the last one, is cut off: left out"));
  EXPECT_EQ(run.facts, "");
}

TEST_F(ReadRun, OfStepsThatWereRepeatedTheLastAttemptCounts) {
  write("metrics.jsonl", train(0, 5) + train(1, 4, R"(,"skipped":"outlier")") +
                             train(2, 3, R"(,"gradient_scale":0.5)") + train(1, 8));
  const RunHistory run = read();
  EXPECT_THAT(run.step, ElementsAre(0, 1));
  EXPECT_THAT(run.of(Series::kLoss), ElementsAre(5, 8));
  EXPECT_TRUE(run.skipped.empty());
  EXPECT_TRUE(run.clipped.empty());
}

TEST_F(ReadRun, RefusesWhatIsNoRun) {
  EXPECT_THAT(test::message_of<InputError>([&] { static_cast<void>(read()); }),
              HasSubstr(": no run: neither config.toml nor metrics.jsonl is there: give run "));
  EXPECT_THAT(test::message_of<InputError>([&] { read_run(directory_.path() / "none"); }),
              HasSubstr("none: no such directory: give run directories"));
}

}  // namespace
}  // namespace muo
