// Runs `muograph report` as a user does. scripts/look_at_report.py checks its charts in a browser.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "support/files.h"
#include "support/program.h"
#include "system/training_run.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A short stand-in for the plotting library, which is not tested here.
class Report : public Training {
 protected:
  Report() {
    test::write_file(path("plotly.js"), "window.Plotly = {};" + std::string(1'000'000, '\n'));
  }

  Outcome report(const std::string& arguments) {
    const bool named = arguments.find("--plotly") != std::string::npos;
    return test::run_program("report " + arguments +
                             (named ? "" : " --plotly " + path("plotly.js").string()));
  }
  [[nodiscard]] std::string run(const std::string& name) const { return path(name).string(); }
  [[nodiscard]] json runs_in(const std::string& name) const {
    const std::string page = test::read_file(path(name)), begin = R"(id="runs">)";
    const std::size_t from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
  }
  void expect_refused(const std::string& arguments, const std::string& why) {
    const Outcome outcome = report(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(why));
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  }
};

TEST_F(Report, OfASweepShowsItsStartedTrials) {
  std::string command = options("sweep", "--matrix-lr 0.1,0.2 --n-head 2,5 --num-iterations 2");
  command = "sweep" + command.substr(command.find(' '));
  ASSERT_EQ(test::run_program(command).code, 0);
  const Outcome outcome = report(run("sweep") + " -o " + run("page.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json runs = runs_in("page.html");
  ASSERT_EQ(runs.size(), 2U) << "a trial whose options are refused has no directory";
  for (const json& trial : runs) {
    EXPECT_TRUE(trial["valLoss"].is_number());
    EXPECT_EQ(trial["options"]["n-head"], "2");
    EXPECT_EQ(trial["facts"]["backend"], "host");
  }
  EXPECT_NE(runs[0]["options"]["matrix-lr"], runs[1]["options"]["matrix-lr"]);
  const std::string text = report(run("sweep") + " --text").out;
  EXPECT_THAT(text, StartsWith("  trial  matrix-lr  steps"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 3) << text;
  fs::remove_all(path("sweep") / "trials");
  expect_refused(run("sweep"), "no trial of this sweep has started");
}

TEST_F(Report, HasTheRecordsOfRuns) {
  train("a", "--num-iterations 4 --sample-every 2 --eval-every 2 --max-grad-norm 0.001");
  train("b", "--num-iterations 3 --depth 2");
  const Outcome outcome = report(run("a") + " " + run("b") + " -o " + run("page.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto bytes = static_cast<double>(fs::file_size(path("page.html")));
  EXPECT_EQ(outcome.out, run("page.html") + fmt::format(": 2 runs, {:.1f} MB\n", bytes / 1e6));
  const json runs = runs_in("page.html");
  ASSERT_EQ(runs.size(), 2U);
  const json& a = runs[0];
  EXPECT_EQ(a["name"], "a");
  EXPECT_EQ(a["steps"], 4);
  EXPECT_EQ(a["tokensPerStep"], 768);
  EXPECT_EQ(a["series"]["loss"]["y"].size(), 4U);
  EXPECT_EQ(a["series"]["val_loss"]["x"], json({0, 2, 4}));
  EXPECT_EQ(a["clipped"], 4);
  EXPECT_EQ(a["samples"].size(), 2U) << "at steps 2 and 4";
  EXPECT_EQ(a["options"]["depth"], "1");
  EXPECT_EQ(runs[1]["options"]["depth"], "2");
  const json& facts = a["facts"];
  EXPECT_EQ(facts["world"], 2);
  EXPECT_EQ(facts["ranks"].size(), 2U);
  EXPECT_GT(facts["flops_per_token"], 0);
  EXPECT_GT(facts["peak_flops"], 0);
  EXPECT_GT(facts["memory_bytes_by_category"]["activations"], 0);
  EXPECT_FALSE(facts["buckets"].empty());
  // The same version as --version prints.
  EXPECT_EQ("muograph " + facts["version"].get<std::string>() + "\n",
            test::run_program("--version").out);
}

TEST_F(Report, OfShardsNamesTheirTokenizer) {
  train("text", "--num-iterations 1");
  const std::string tokenizer = path("bpe.json").string(), text = text_.string();
  text_ = path("shards");
  for (const std::string& command :
       {concat("tokenizer train --data ", text, " --vocab-size 270 --out ", tokenizer),
        concat("tokenize ", text, " --tokenizer ", tokenizer, " --document-separator e --out ",
               text_.string())})
    ASSERT_EQ(test::run_program(command).code, 0) << command;
  train("a", "--num-iterations 1");
  ASSERT_EQ(report(run("text") + " " + run("a") + " -o " + run("page.html")).code, 0);
  const json runs = runs_in("page.html");
  EXPECT_EQ(runs[0]["options"]["tokenizer"], "byte");
  EXPECT_EQ(runs[1]["options"]["tokenizer"], (text_ / "tokenizer.json").string());
  EXPECT_THAT(runs[1]["heldOut"].get<std::string>(), HasSubstr(", tokenizer "));
}

TEST_F(Report, DrawsARunOnceAndAcceptsOlderOrTruncatedOnes) {
  train("a", "--num-iterations 2");
  fs::remove(path("a/run.json"));
  const std::string metrics = test::read_file(path("a/metrics.jsonl"));
  test::write_file(path("a/metrics.jsonl"), metrics.substr(0, metrics.size() - 9));
  const Outcome outcome = report(run("a") + " " + run("a") + "/../a/ --out " + run("page.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("a/../a/ is given more than once\n"));
  EXPECT_THAT(outcome.err, HasSubstr("is incomplete: ignored\n"));
  const json runs = runs_in("page.html");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_TRUE(runs[0]["facts"].is_null());
  EXPECT_EQ(runs[0]["notes"].size(), 1U);
}

TEST_F(Report, RejectsPathsItCannotReadOrWrite) {
  fs::create_directories(path("empty"));
  fs::create_directories(path("a"));
  test::write_file(path("a/config.toml"), "depth = 1\n");
  expect_refused("", "report: RUN... is required: run directories");
  expect_refused(run("none") + " -o " + run("page.html"), "none: no such directory");
  expect_refused(run("empty") + " -o " + run("page.html"), "empty: no run: it has neither");
  expect_refused(run("a") + " -o " + run("none/page.html"),
                 "cannot write to " + run("none/page.html") + ": No such");
  expect_refused(run("a") + " -o " + run("empty"),
                 "cannot write to " + run("empty") + ": Is a directory");
  expect_refused(run("a") + " -o /dev/null", "it is not a regular file");
  expect_refused(run("a") + " -o " + run("page.html") + " --plotly " + run("none.js"),
                 "none.js: cannot");
  EXPECT_FALSE(fs::exists(path("page.html")));
}

TEST_F(Report, ReplacesAPageAtomically) {
  fs::create_directories(path("a"));
  fs::create_directories(path("out"));
  test::write_file(path("a/config.toml"), "depth = 1\n");
  test::write_file(path("out/page.html"), "old");
  // A page that is open elsewhere keeps its contents.
  fs::create_hard_link(path("out/page.html"), path("before"));
  ASSERT_EQ(report(run("a") + " -o " + run("out/page.html")).code, 0);
  EXPECT_EQ(test::read_file(path("before")), "old");
  EXPECT_THAT(test::read_file(path("out/page.html")), EndsWith("</html>\n"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("out")), {}), 1);
}

}  // namespace
}  // namespace muo
