#include "kit/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"

namespace muo::kit {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RunHistory run_of(std::int64_t steps) {
  RunHistory run;
  run.directory = "runs/a";
  for (std::int64_t step = 0; step < steps; ++step) {
    run.step.push_back(step);
    run.tokens.push_back((step + 1) * 64);
    for (std::vector<double>& values : run.series)
      values.push_back(1.0 / static_cast<double>(step + 3));
  }
  return run;
}

json data_of(const RunHistory& run, std::size_t points = 4000) {
  return json::parse(run_data(run, "a", points));
}

// The data that the page's script reads.
json runs_in(const std::string& page) {
  const std::string begin = R"(id="runs">)";
  const std::size_t from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(RunData, IsNullWithoutStepsAndFacts) {
  const json data = data_of(RunHistory());
  EXPECT_EQ(data["steps"], 0);
  EXPECT_TRUE(data["facts"].is_null());
  EXPECT_TRUE(data["times"].is_null());
  EXPECT_TRUE(data["series"]["loss"].is_null());
  EXPECT_TRUE(data["clock"]["x"].empty());
}

TEST(RunData, HasNullForNonFiniteNumbers) {
  RunHistory run = run_of(3);
  run.series[0] = {2, kNan, 1};
  run.series[7] = {kNan, kNan, kNan};
  run.skipped = {{.step = 1, .why = "nonfinite", .bad_number = "w"}};
  run.series[4][1] = std::numeric_limits<double>::infinity();
  const json data = data_of(run);
  EXPECT_EQ(data["series"]["loss"]["y"], json::parse("[2,null,1]"));
  EXPECT_TRUE(data["series"]["mfu"].is_null());
  EXPECT_TRUE(data["mfu"].is_null());
  EXPECT_EQ(data["skipped"]["count"], 1);
  EXPECT_TRUE(data["skipped"]["named"][0]["norm"].is_null());
}

TEST(RunData, HasUpdatesByGroupAndByLayer) {
  RunHistory run = run_of(3);
  run.update_step = {0, 1};
  run.update_ratio = {{"wte", {kNan, 0.25}}, {"unknown", {kNan, kNan}}};
  run.layers_step = {0, 2};
  run.layer_ratio = {{0.5}, {0.125, kNan}};
  const json data = data_of(run);
  EXPECT_EQ(data["updates"], json::parse(R"({"wte": {"x": [0, 1], "y": [null, 0.25]}})"));
  EXPECT_EQ(data["layers"], json::parse(R"({"x": [0, 2], "rows": [[0.5, 0.125], [null, null]]})"));
}

TEST(RunData, HasOnlyFactsThatThePageCanShow) {
  RunHistory run;
  run.facts = R"({"world": 2, "version": "1", "buckets": [{"name": "a", "units": 3}], "ranks": [],
                  "memory_bytes_by_category": {"weights": 8}, "notes": ["a"]})";
  const json whole = data_of(run)["facts"];
  EXPECT_EQ(whole, json::parse(R"({"world": 2, "version": "1", "ranks": [],
                                   "buckets": [{"name": "a", "units": 3}],
                                   "memory_bytes_by_category": {"weights": 8}})"));
  for (const char* fact : {"world", "version", "buckets", "ranks", "memory_bytes_by_category"})
    for (const char* bad :
         {"null", "[null]", "[[]]", "[1]", R"([{"a": 1}, null])", R"([{"a": {"toString": 1}}])",
          R"([{"a": null}])", R"({"toString": null})", R"({"a": {}})"}) {
      json facts = json::parse(run.facts), left = whole;
      facts[fact] = json::parse(bad);
      left.erase(fact);
      RunHistory damaged;
      damaged.facts = facts.dump();
      EXPECT_EQ(data_of(damaged)["facts"], left) << fact << ": " << bad;
    }
  run.facts = R"({"version": {"toString": 1}, "buckets": {"toString": 1}, "world": [{"a": 1}]})";
  EXPECT_EQ(data_of(run)["facts"], json::object());
}

TEST(RunData, CountsTimeOfStepsBetweenRecords) {
  RunHistory run;
  run.step = {0, 10, 20};
  run.tokens = {5, 55, 105};
  for (std::vector<double>& values : run.series)
    values = {1000, 200, 300};
  const json data = data_of(run);
  EXPECT_EQ(data["clock"]["x"], json({0, 10, 20}));
  EXPECT_EQ(data["clock"]["y"], json({1, 3, 6}));
  EXPECT_EQ(data["seconds"], 6);
}

// 5 tokens per step, 10 from step 18 on: points on a straight line are omitted.
TEST(RunData, CountsTokensWhereAResumeChangedTheBatch) {
  RunHistory run;
  run.step = {0, 5, 10, 20, 30, 40};
  run.tokens = {5, 30, 55, 120, 220, 320};
  for (std::vector<double>& values : run.series)
    values.assign(6, 1);
  const json data = data_of(run);
  EXPECT_EQ(data["tokens"]["x"], json({0, 10, 20, 40}));
  EXPECT_EQ(data["tokens"]["y"], json({5, 55, 120, 320}));
  EXPECT_EQ(data["tokensPerStep"], 10);
}

TEST(RunData, NamesOptionsOfLoggingAndOfFiles) {
  RunHistory run;
  run.options = {{"data", "a"}, {"depth", "1"}, {"log-every", "2"}, {"out", "b"}};
  EXPECT_EQ(data_of(run)["asides"], json({"data", "log-every", "out"}));
}

TEST(RunData, OfTwoHundredLongRunsIsBelowTenMegabytes) {
  const RunHistory run = run_of(10'000);
  EXPECT_LT(200 * run_data(run, "a", points_per_curve(200)).size(), 10'000'000U);
  EXPECT_EQ(points_per_curve(1), 4000U);
  EXPECT_GE(points_per_curve(100'000), 4U);
}

TEST(RunData, KeepsSamplesFromTheFirstToTheLast) {
  RunHistory run;
  for (std::int64_t step = 0; step < 100; ++step)
    run.samples.push_back({step, "text"});
  run.alarms.assign(60, {7, "data", "steps wait"});
  const json alarms = data_of(run, 120)["alarms"];
  EXPECT_EQ(alarms["count"], 60);
  ASSERT_EQ(alarms["named"].size(), 50U);
  EXPECT_EQ(alarms["named"][0], "steps wait");
  const json samples = data_of(run, 120)["samples"];
  ASSERT_EQ(samples.size(), 6U);
  EXPECT_EQ(samples.front()["step"], 0);
  EXPECT_EQ(samples.back()["step"], 99);
}

TEST(ReportPage, KeepsHostileTextsInsideTheData) {
  const std::string hostile = "</script><script>alert(1)</script><!-- \xE2\x80\xA8 \xFF";
  RunHistory run = run_of(2);
  run.directory = hostile;
  run.config = hostile;
  run.options = {{"prompt", hostile}};
  run.facts = R"({"version":"</script><!--<script>"})";
  run.samples = {{1, hostile}};
  run.skipped = {{.step = 1, .why = hostile, .bad_number = hostile}};
  run.notes = {hostile};
  const std::string page = report_page(std::vector<std::string>{run_data(run, hostile, 100)}, "");
  const std::string plain = report_page(std::vector<std::string>{}, "");
  const auto count = [](const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++n;
    return n;
  };
  for (const char* part : {"<script", "</script", "<!--"})
    EXPECT_EQ(count(page, part), count(plain, part)) << part;
  const json data = runs_in(page);
  const std::string kept = "</script><script>alert(1)</script><!-- \xE2\x80\xA8 \xEF\xBF\xBD";
  EXPECT_EQ(data[0]["name"], kept);
  EXPECT_EQ(data[0]["samples"][0]["text"], kept);
  EXPECT_EQ(data[0]["options"]["prompt"], kept);
}

TEST(ReportPage, LoadsNothingAndWritesNoMarkup) {
  const std::string page = report_page(std::vector<std::string>{}, "the library");
  EXPECT_THAT(page, HasSubstr("<script>the library</script>"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* part :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
        "http:", "https:", " src=", "@import", "@PLOTLY@", "@RUNS@", ".js@", ".css@"})
    EXPECT_THAT(page, Not(HasSubstr(part)));
}

TEST(ReportPage, RefusesAScriptThatWouldEndItself) {
  const std::vector<std::string> none;
  EXPECT_EQ(test::message_of<InputError>([&] { report_page(none, "a</script>b"); }),
            "plotly.js contains </script: give the minified file of its package");
}

TEST(RunNames, AreShortUnlessAmbiguous) {
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_THAT(run_names(Paths{"runs/a", "runs/b/", "/x/c/."}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(run_names(Paths{"x/a", "y/a"}), ElementsAre("x/a", "y/a"));
  EXPECT_THAT(run_names(Paths{"."}),
              ElementsAre(std::filesystem::current_path().filename().string()));
}

}  // namespace
}  // namespace muo::kit
