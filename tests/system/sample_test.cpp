// Runs `muograph sample` as a user does.
#include <gmock/gmock.h>

#include "support/command.h"
#include "support/paths.h"
#include "system/training_run.h"

namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Sample : public Training {
 protected:
  Sample() { train("run"); }
  [[nodiscard]] Outcome sample(const std::string& options) const {
    return run_program("sample " + path("run").string() + " --max-tokens 40 " + options);
  }
  [[nodiscard]] std::string text(const std::string& options) const {
    const Outcome outcome = sample(options);
    if (outcome.code != 0) throw Error("exit code not 0: " + outcome.err);
    return outcome.out;
  }
  // `out`, the output for a single prompt and sample, under a heading.
  [[nodiscard]] static std::string under(const std::string& heading, const std::string& out) {
    return "--- " + heading + "\n" + out;
  }
};

TEST_F(Sample, BatchesAreTheSameTextsUnderHeadings) {
  const std::string a = text("--prompt line"), b = text("--prompt other");
  const std::string a_second = text("--prompt line --seed 43");
  EXPECT_NE(a, a_second);
  EXPECT_THAT(a, StartsWith("line"));
  EXPECT_EQ(text("--prompt line --prompt other"), under("prompt 1", a) + under("prompt 2", b));
  EXPECT_EQ(text("--prompt line --num-samples 2"),
            under("sample 1", a) + under("sample 2", a_second));
  // More samples than are decoded at once.
  const std::string many = text("--prompt other --prompt line --num-samples 9");
  EXPECT_THAT(many, HasSubstr(under("prompt 2, sample 1", a)));
  EXPECT_THAT(many, HasSubstr(under("prompt 2, sample 2", a_second)));
  for (const char* const prompts : {"line\n\nother", "line\r\n\r\nother\r\n"}) {
    test::write_file(path("prompts"), prompts);
    EXPECT_EQ(text("--prompt-file " + path("prompts").string()),
              text("--prompt line --prompt other"));
  }
}

TEST_F(Sample, EndsBeforeAStopText) {
  const std::string letters = "--prompt line --top-k 8";  // common letters, so no quotes
  const std::string whole = text(letters);
  const std::string stop = whole.substr(whole.size() - 10, 3);
  const std::string want = whole.substr(0, whole.find(stop, 4)) + "\n";
  EXPECT_LT(want.size(), whole.size());
  EXPECT_EQ(text(letters + " --stop 'never in it' --stop '" + stop + "'"), want);
}

TEST_F(Sample, ReadsPromptsUntilTheEnd) {
  const Outcome outcome =
      test::run_command("printf 'line\\nother\\r\\n' | " + test::program() + " sample " +
                        path("run").string() + " --max-tokens 40 --interactive");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, text("--prompt line") + text("--prompt other"));
}

TEST_F(Sample, ReportsErrorsInPrompts) {
  const Outcome missing = sample("--prompt-file nowhere.txt");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--prompt-file nowhere.txt: cannot be read"));
  test::write_file(path("empty"), "\n\n");
  const Outcome empty = sample("--prompt-file " + path("empty").string());
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("has no line with text"));
}

}  // namespace
}  // namespace muo
