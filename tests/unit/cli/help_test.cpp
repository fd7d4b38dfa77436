#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "base/check.h"
#include "cli/cli.h"
#include "support/command_line.h"
#include "support/errors.h"

namespace muo::cli {
namespace {

using test::parse;
using test::words_of;

// Checks the examples of every command; files that they name need not exist.
TEST(Help, HasExamplesThatAreCommands) {
  for (const char* const name :
       {"train", "sweep", "eval", "sample", "plan", "report", "doctor", "tokenize", "bench step",
        "bench launch", "bench optimizer", "checkpoint import", "checkpoint export",
        "checkpoint inspect", "checkpoint verify", "tokenizer train", "tokenizer encode",
        "tokenizer decode", "tokenizer convert"}) {
    const std::string help = std::get<Answer>(parse(words_of(std::string(name) + " --help"))).text;
    const std::size_t begin = help.find("\nExamples:\n");
    ASSERT_NE(begin, std::string::npos) << name;
    std::istringstream lines(help.substr(begin + 11));
    int count = 0;
    for (std::string line; std::getline(lines, line) && !line.empty(); ++count) {
      std::vector<std::string> words = words_of(line.substr(0, line.find('<', line.size() - 10)));
      ASSERT_EQ(words.front(), "muograph");
      words.erase(words.begin());
      EXPECT_EQ(line.find(std::string("  muograph ") + name), 0U) << line;
      const std::string error = test::message_of<InputError>([&] { return parse(words).index(); });
      EXPECT_THAT(error, testing::AnyOf("no exception", testing::HasSubstr("runs/"))) << line;
    }
    EXPECT_GE(count, 2) << name;
  }
}

TEST(Help, WordHelpEqualsOptionHelp) {
  const auto text = [](const std::string& line) {
    return std::get<Answer>(parse(words_of(line))).text;
  };
  EXPECT_EQ(text("help train"), text("train --help"));
  EXPECT_EQ(text("help bench step"), text("bench step --help"));
  EXPECT_EQ(text("bench"), text("bench --help"));
  EXPECT_EQ(text("help"), text("--help"));
}

}  // namespace
}  // namespace muo::cli
