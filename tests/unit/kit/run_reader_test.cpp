#include "kit/report/run_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/nested_arrays.h"

namespace muo::kit {
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
            R"({"kind":"update","step":1,"wte_rms":1,"wte_ratio":null})" + "\n" +
            R"({"kind":"update","step":2,"wte_ratio":0.25,"lm_head_ratio":0.5})" + "\n" +
            R"({"kind":"matrices","step":2,"layer_ratio":[0.125,null],"rms":{"w":1}})" + "\n" +
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
  EXPECT_THAT(run.of(Series::kMfu),
              ElementsAre(testing::IsNan(), testing::IsNan(), testing::IsNan()));
  ASSERT_EQ(run.skipped.size(), 1U);
  EXPECT_EQ(run.skipped[0].step, 1);
  EXPECT_EQ(run.skipped[0].why, "nonfinite");
  EXPECT_EQ(run.skipped[0].bad_number, "w[3] on rank 1");
  EXPECT_THAT(run.clipped, ElementsAre(2));
  EXPECT_THAT(run.gradient_scale, ElementsAre(0.5));
  EXPECT_THAT(run.val_loss, ElementsAre(5.5));
  EXPECT_THAT(run.val_bpb, ElementsAre(testing::IsNan()));
  EXPECT_THAT(run.update_step, ElementsAre(1, 2));
  EXPECT_THAT(run.update_ratio, testing::UnorderedElementsAre(
                                    testing::Pair("wte", ElementsAre(testing::IsNan(), 0.25)),
                                    testing::Pair("lm_head", ElementsAre(testing::IsNan(), 0.5))));
  EXPECT_THAT(run.layers_step, ElementsAre(2));
  EXPECT_THAT(run.layer_ratio, ElementsAre(ElementsAre(0.125, testing::IsNan())));
  ASSERT_EQ(run.samples.size(), 1U);
  EXPECT_EQ(run.samples[0].text, "one\ntwo");
  ASSERT_EQ(run.alarms.size(), 1U);
  EXPECT_EQ(run.alarms[0].step, 2);
  EXPECT_EQ(run.alarms[0].kind + ": " + run.alarms[0].text, "data: steps wait");
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(ReadRun, AcceptsOlderVersionsAndRunsWithoutSteps) {
  write("config.toml", "depth = 4\n");
  const RunHistory run = read();
  EXPECT_TRUE(run.step.empty());
  EXPECT_EQ(run.facts, "");
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(ReadRun, NotesDamageAndReadsTheRest) {
  write("config.toml", "depth = = 4\n");
  write("run.json", "[1]");
  write("metrics.jsonl", train(0, 5) + "not a record\n{\"kind\":\"train\",\"step\":-1}\n" +
                             "{\"kind\":\"train\",\"step\":1e999}\n"
                             "{\"kind\":\"train\",\"step\":9223372036854775807}\n" +
                             train(1, 4) + R"({"kind":"train","step":2,"lo)");
  const RunHistory run = read();
  EXPECT_THAT(run.step, ElementsAre(0, 1));
  EXPECT_THAT(run.notes,
              ElementsAre(HasSubstr("config.toml:1: "), "run.json: not a JSON object: ignored",
                          "metrics.jsonl: 4 invalid lines, the first is line 2: ignored",
                          "metrics.jsonl: last line 7 is incomplete: ignored"));
  EXPECT_EQ(run.facts, "");
}

TEST_F(ReadRun, NamesTokenizerAndHeldOutData) {
  write("config.toml", "tokenizer = \"byte\"\n");
  write("run.json", R"({"tokenizer":"shards/tokenizer.json",
                        "data":{"val_tokens":30,"val_fingerprint":7,"tokenizer":"ab12"}})");
  const RunHistory run = read();
  EXPECT_THAT(run.options, ElementsAre(testing::Pair("tokenizer", "shards/tokenizer.json")));
  EXPECT_EQ(run.held_out, "30 tokens of fingerprint 7, tokenizer ab12");
}

TEST_F(ReadRun, NotesIrregularFiles) {
  std::filesystem::create_directory(directory_.path() / "config.toml");
  ASSERT_EQ(::mkfifo((directory_.path() / "run.json").c_str(), 0600), 0);
  write("metrics.jsonl", train(0, 5));
  EXPECT_THAT(read().notes, ElementsAre("config.toml: not a regular file: ignored",
                                        "run.json: not a regular file: ignored"));
}

// Copying or writing a JSON value recurses once per level.
TEST_F(ReadRun, IgnoresDeepNesting) {
  const std::string deep = test::nested_arrays(200'000);
  write("run.json", R"({"a":)" + deep + "}");
  write("metrics.jsonl", R"({"step":0,"kind":)" + deep + "}\n" + train(1, 4));
  const RunHistory run = read();
  EXPECT_THAT(run.step, ElementsAre(1));
  EXPECT_EQ(run.facts, "");
  EXPECT_THAT(run.notes,
              ElementsAre("run.json: not a JSON object: ignored",
                          "metrics.jsonl: 1 invalid line, the first is line 1: ignored"));
}

TEST_F(ReadRun, TheLastAttemptOfARepeatedStepCounts) {
  const auto update = [](int step, const char* ratio) {
    const std::string at = concat(R"(,"step":)", step);
    return concat(R"({"kind":"update")", at, R"(,"wte_ratio":)", ratio, "}\n",
                  R"({"kind":"matrices")", at, R"(,"layer_ratio":[)", ratio, "]}\n");
  };
  write("metrics.jsonl", concat(train(0, 5), train(1, 4, R"(,"skipped":"outlier")"),
                                update(1, "0.1"), train(2, 3, R"(,"gradient_scale":0.5)"),
                                update(2, "0.2"), train(1, 8), update(1, "0.3")));
  const RunHistory run = read();
  EXPECT_THAT(run.step, ElementsAre(0, 1));
  EXPECT_THAT(run.of(Series::kLoss), ElementsAre(5, 8));
  EXPECT_TRUE(run.skipped.empty());
  EXPECT_TRUE(run.clipped.empty());
  EXPECT_THAT(run.update_step, ElementsAre(1));
  EXPECT_THAT(run.update_ratio, ElementsAre(testing::Pair("wte", ElementsAre(0.3))));
  EXPECT_THAT(run.layer_ratio, ElementsAre(ElementsAre(0.3)));
}

TEST_F(ReadRun, AcceptsACompleteLastLineWithoutNewline) {
  const std::string last = train(1, 4);
  write("metrics.jsonl", train(0, 5) + last.substr(0, last.size() - 1));
  const RunHistory run = read();
  EXPECT_THAT(run.step, ElementsAre(0, 1));
  EXPECT_THAT(run.notes, testing::IsEmpty());
}

TEST_F(ReadRun, ReadsWhatTheLoggerWouldNotWrite) {
  write("metrics.jsonl",
        "{ \"step\": 0, \"loss\": 5, \"kind\": \"train\", \"more\": [1, {}] }\n"
        "{\"kind\":\"train\",\"step\":1,\"loss\":4,\"skipped\":\"a\\u0062\"}\n");
  const RunHistory run = read();
  EXPECT_THAT(run.of(Series::kLoss), ElementsAre(5, 4));
  EXPECT_EQ(run.skipped.at(0).why, "ab");
  EXPECT_THAT(run.notes, testing::IsEmpty());
}

TEST_F(ReadRun, RejectsOtherDirectories) {
  EXPECT_THAT(test::message_of<InputError>([&] { static_cast<void>(read()); }),
              HasSubstr(": no run: it has neither config.toml nor metrics.jsonl: give run "));
  EXPECT_THAT(test::message_of<InputError>([&] { read_run(directory_.path() / "none"); }),
              HasSubstr("none: no such directory: give run directories"));
}

class RunReaders : public ReadRun {
 protected:
  void append(const std::string& text) {
    std::ofstream(directory_.path() / "metrics.jsonl", std::ios::app) << text;
  }
  [[nodiscard]] const RunHistory& run() const { return reader_.history(); }
  [[nodiscard]] const std::vector<double>& losses() const { return run().of(Series::kLoss); }

  RunReader reader_{directory_.path()};
};

TEST_F(RunReaders, ReadWhatWasAdded) {
  std::string text;
  for (int step = 0; step < 20; ++step)
    text += train(step, step);
  write("metrics.jsonl", text);
  EXPECT_TRUE(reader_.read());
  EXPECT_FALSE(reader_.read());
  // Replaces bytes at the start, which is noticed only if the file is read again.
  test::write_file(directory_.path() / "metrics.jsonl",
                   std::string(200, '?') + text.substr(200) + train(20, 7));
  EXPECT_TRUE(reader_.read());
  EXPECT_EQ(losses().size(), 21U);
  EXPECT_EQ(losses().front(), 0);
  EXPECT_EQ(losses().back(), 7);
  EXPECT_THAT(run().notes, testing::IsEmpty());
}

TEST_F(RunReaders, WaitForTheEndOfALine) {
  const std::string line = train(1, 4);
  write("metrics.jsonl", train(0, 5) + line.substr(0, 20));
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(5));
  append(line.substr(20, line.size() - 21));
  EXPECT_FALSE(reader_.read());
  append("\n" + train(2, 3));
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(5, 4, 3));
  EXPECT_THAT(run().notes, testing::IsEmpty());
}

TEST_F(RunReaders, RereadATruncatedOrReplacedFile) {
  const std::string again =
      "metrics.jsonl was truncated or replaced, as by a resumed run: read "
      "again from the start";
  write("config.toml", "depth = 4\n");
  write("metrics.jsonl", train(0, 5) + train(1, 4) + "no record\n");
  EXPECT_TRUE(reader_.read());
  write("metrics.jsonl", train(0, 5));
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(5));
  EXPECT_THAT(run().notes, ElementsAre(again));
  EXPECT_EQ(run().options.size(), 1U);
  // Replaced by a longer file.
  write("metrics.jsonl", train(0, 6) + train(1, 3));
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(6, 3));
  // Truncated within an incomplete line.
  append(train(2, 2).substr(0, 10));
  EXPECT_FALSE(reader_.read());
  write("metrics.jsonl", train(0, 6) + train(1, 3) + train(2, 1));
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(6, 3, 1));
}

TEST_F(RunReaders, KeepTheContentsOfRemovedFiles) {
  write("config.toml", "depth = 4\n");
  write("metrics.jsonl", train(0, 5));
  EXPECT_TRUE(reader_.read());
  std::filesystem::remove(directory_.path() / "metrics.jsonl");
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(5));
  EXPECT_THAT(run().notes, ElementsAre("files of this run are gone: showing their last contents"));
  EXPECT_FALSE(reader_.read());
  write("metrics.jsonl", train(0, 5));
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(run().notes, testing::IsEmpty());
  std::filesystem::remove_all(directory_.path());
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(losses(), ElementsAre(5));
  EXPECT_EQ(run().options.size(), 1U);
  EXPECT_THAT(run().notes, ElementsAre("the directory is gone: showing its last contents"));
}

TEST_F(RunReaders, SeeFilesCreatedLater) {
  EXPECT_FALSE(reader_.read());
  write("metrics.jsonl", "");
  EXPECT_FALSE(reader_.read());
  write("run.json", "{}");
  EXPECT_TRUE(reader_.read());
  EXPECT_EQ(run().facts, "{}");
  write("config.toml", "depth = 4\n");
  EXPECT_TRUE(reader_.read());
  write("config.toml", "depth = 12\n");
  EXPECT_TRUE(reader_.read());
  EXPECT_THAT(run().options, ElementsAre(testing::Pair("depth", "12")));
}

}  // namespace
}  // namespace muo::kit
