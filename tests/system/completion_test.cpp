#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "support/command.h"
#include "support/paths.h"

namespace muo {
namespace {

using testing::AllOf;
using testing::Contains;

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    out.push_back(line);
  return out;
}

// Completions of the last of `words`.
std::vector<std::string> completions(const std::vector<const char*>& words) {
  std::vector<const char*> arguments = {"complete"};
  std::ranges::copy(words, std::back_inserter(arguments));
  return lines_of(std::get<cli::Answer>(cli::parse_command_line(arguments)).text);
}

TEST(Completion, OfCommandsAndTheirMembers) {
  EXPECT_THAT(completions({"t"}), ElementsAre("train", "timeline", "tokenize", "tokenizer"));
  EXPECT_THAT(completions({""}), AllOf(Contains("train"), Contains("doctor"), Contains("bench")));
  EXPECT_THAT(completions({"bench", ""}), ElementsAre("step", "launch", "optimizer"));
  EXPECT_THAT(completions({"checkpoint", "in"}), ElementsAre("inspect"));
  EXPECT_THAT(completions({}), IsEmpty());
}

TEST(Completion, OfOptionsIsTheCommandsOwn) {
  EXPECT_THAT(completions({"train", "--max"}),
              ElementsAre("--max-seq-len", "--max-grad-norm", "--max-skipped"));
  EXPECT_THAT(completions({"bench", "step", "--ste"}), ElementsAre("--steps"));
  EXPECT_THAT(completions({"doctor", "--"}), ElementsAre("--gpu", "--help"));
  EXPECT_THAT(completions({"report", "runs/a", "--fo"}), ElementsAre("--follow"));
  EXPECT_THAT(completions({"report", "--follow", "--po"}), ElementsAre("--port"));
  EXPECT_THAT(completions({"train", "--data", "x", "--data-"}), ElementsAre("--data-max-bytes"));
  EXPECT_THAT(completions({"train", "--softcap", "--dep"}), ElementsAre("--depth"));
}

TEST(Completion, OfValuesOffersChoicesOrFiles) {
  EXPECT_THAT(completions({"train", "--dtype", ""}), ElementsAre("fp32", "bf16"));
  EXPECT_THAT(completions({"train", "--graph", "o"}), ElementsAre("on", "off"));
  EXPECT_THAT(completions({"train", "--newton-schulz", "gram"}),
              ElementsAre("gram", "gram_merged"));
  EXPECT_THAT(completions({"train", "--data", ""}), IsEmpty());
  EXPECT_THAT(completions({"train", "--config", ""}), IsEmpty());
}

TEST(Completion, BashAsksTheProgram) {
  const std::string setup = "bash -c 'source " + test::source_directory() +
                            "/src/cli/completion/muograph.bash; COMP_WORDS=(" + test::program() +
                            " ";
  const auto complete = [&](const std::string& words, int current) {
    const test::Outcome outcome =
        test::run_command(setup + words + "); COMP_CWORD=" + std::to_string(current) +
                          R"(; _muograph; printf "%s\n" "${COMPREPLY[@]}"; complete -p muograph')");
    EXPECT_EQ(outcome.err, "");
    return lines_of(outcome.out);
  };
  const std::string registered = "complete -o default -F _muograph muograph";
  EXPECT_THAT(complete("tr", 1), ElementsAre("train", registered));
  EXPECT_THAT(complete("train --dtype \"\" --depth 4", 3), ElementsAre("fp32", "bf16", registered));
}

TEST(Completion, ZshAsksTheProgram) {
  if (test::run_command("command -v zsh").code != 0) GTEST_SKIP() << "there is no zsh";
  // Replaces the shell's completion functions by functions that print what they would offer.
  const std::string setup =
      "zsh -fc 'compadd() { print -l -- ${(P)2} }; _files() { print files }; "
      "complete() { source " +
      test::source_directory() + "/src/cli/completion/_muograph }; words=(" + test::program() + " ";
  const auto complete = [&](const std::string& words, int current) {
    const test::Outcome outcome = test::run_command(
        setup + words + ") CURRENT=" + std::to_string(current + 1) + "; complete'");
    EXPECT_EQ(outcome.err, "");
    return lines_of(outcome.out);
  };
  EXPECT_THAT(complete("tr", 1), ElementsAre("train"));
  EXPECT_THAT(complete("train --dtype \"\" --depth 4", 3), ElementsAre("fp32", "bf16"));
  EXPECT_THAT(complete("train --data README", 3), ElementsAre("files"));
}

}  // namespace
}  // namespace muo
