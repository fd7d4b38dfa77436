#include "support/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/files.h"
#include "system/run_files.h"

namespace muo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void expect_refused(const std::string& arguments, const std::string& text) {
  const test::Outcome outcome = test::run_program(arguments);
  EXPECT_EQ(outcome.code, 2) << arguments;
  EXPECT_EQ(outcome.out, "") << arguments;
  EXPECT_THAT(outcome.err, testing::StartsWith("muograph: error: ")) << arguments;
  EXPECT_THAT(outcome.err, HasSubstr(text)) << arguments;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << "one line: " << outcome.err;
}

TEST(Program, HelpAndVersionGoToStdout) {
  for (const char* arguments :
       {"--help", "train --help", "eval --help", "sample --help", "plan --help", "bench --help",
        "bench step --help", "doctor --help", "--version"}) {
    const test::Outcome outcome = test::run_program(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments;
    EXPECT_EQ(outcome.err, "") << arguments;
    EXPECT_THAT(outcome.out, HasSubstr("muograph")) << arguments;
  }
}

TEST(Program, LostOutputIsAnError) {
  for (const char* arguments : {"--version", "train --help"}) {
    const test::Outcome outcome = test::run_program(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("standard output: ")) << arguments;
  }
}

TEST(Program, ClosedOutputIsAnError) {
  const test::Outcome outcome = test::run_program("plan --depth 1 >&-");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("standard output: "));
}

TEST(Program, PrintsNoControlCharactersOfFileNames) {
  const test::TemporaryDirectory directory;
  const std::string text = directory.path() / "text", run = directory.path() / "r\033]0;x\007n";
  test::write_text(text, 90);
  ASSERT_EQ(test::run_program("train --data " + text +
                              " --n-embd 32 --n-head 1 --max-seq-len 32 "
                              "--total-batch-size 32 --devices 1 --num-iterations 1 --out '" +
                              run + "'")
                .code,
            0);
  for (const std::string& arguments :
       {"checkpoint verify '" + run + "'", "checkpoint inspect '" + run + "'", "eval '" + run + "'",
        "report --text '" + run + "'",
        "tokenize '" + run + "x' --tokenizer byte --out '" + run + "o'",
        "plan --data '" + run + "x'"}) {
    const test::Outcome outcome = test::run_program(arguments);
    EXPECT_THAT(outcome.out + outcome.err, AllOf(HasSubstr("r?]0;x?n"), Not(HasSubstr("\033"))))
        << arguments;
  }
}

TEST(Program, PrintsItsCommitAndBuild) {
  EXPECT_THAT(
      test::run_program("--version").out,
      testing::MatchesRegex(
          "muograph [0-9.]+ \\((commit [0-9a-f]+(-modified)?|unknown commit), [A-Za-z]+\\)\n"));
}

TEST(Program, BadUsageIsOneLineAndExitTwo) {
  expect_refused("", "no command");
  expect_refused("trian", "did you mean train?");
  expect_refused("train --data x --dept 4", "unknown option --dept; did you mean --depth?");
  expect_refused("train --data x --depth 0", "--depth: '0' is out of range");
  expect_refused("train", "--data is required");
  expect_refused("train --data x --config /nonexistent.toml", "/nonexistent.toml");
  expect_refused("train --data /nonexistent", "/nonexistent");
  expect_refused("sample", "sample: DIR is required");
  expect_refused("eval --checkpoint /nonexistent", "/nonexistent");
  expect_refused("plan --total-batch-size 1000", "--total-batch-size 1000: not a multiple");
  expect_refused("plan --n-embd 100 --n-head 3", "--n-embd 100");
}

TEST(Program, EmptyOrTooShortTextIsRejected) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "text";
  test::write_file(file, "");
  expect_refused("train --data " + file, file);
  test::write_file(file, "too short");
  expect_refused("train --data " + file + " --out " + (directory.path() / "run").string(),
                 "too short: 1 token of held-out data");
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "run"));
}

TEST(Program, AnUnknownConfigKeyIsRejectedByName) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "c.toml";
  test::write_file(file, "data = ['x']\nleyers = 4\n");
  expect_refused("train --config " + file, file + ":2: leyers: unknown key");
}

TEST(Program, APlanThatDoesNotFitIsRefusedWithNumbers) {
  const test::Outcome outcome = test::run_program(
      "plan --model plain --devices 2 --depth 6 --n-embd 16384 --n-head 128 --vocab-size 65536 "
      "--device-batch-size 64 --max-seq-len 2048");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("not enough memory: 2 devices need"));
  EXPECT_THAT(outcome.err, HasSubstr("; the minimum is "));
  EXPECT_THAT(outcome.err, HasSubstr("give a smaller --depth or --max-seq-len (6 layers, T 2048)"));
}

TEST(Program, DoctorDescribesTheMachine) {
  const test::Outcome outcome = test::run_program("doctor");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  for (const char* text : {"CPU", "cores", "memory", "disk", "oneDNN", "GFLOP/s in fp32", "GPU",
                           "CUDA backend", "Ready to train."})
    EXPECT_THAT(outcome.out, HasSubstr(text));
}

}  // namespace
}  // namespace muo
