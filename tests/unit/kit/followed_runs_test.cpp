#include "kit/report/followed_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"

namespace muo::kit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class Followed : public testing::Test {
 protected:
  fs::path path(const std::string& name) { return directory_.path() / name; }
  // Starts a run, or adds steps to it.
  void train(const std::string& name, int first, int last) {
    fs::create_directories(path(name));
    std::ofstream out(path(name) / "metrics.jsonl", std::ios::app);
    for (int step = first; step < last; ++step)
      out << R"({"kind":"train","step":)" << step << R"(,"loss":)" << 9 - step << "}\n";
  }
  // "name:steps" of the runs that have changed.
  static std::vector<std::string> ask(FollowedRuns& runs, std::uint64_t since,
                                      json* all = nullptr) {
    const json answer = json::parse(runs.changed_since(since));
    std::vector<std::string> out;
    for (const json& run : answer["runs"])
      out.push_back(run[1]["name"].get<std::string>() + ":" + run[1]["steps"].dump());
    if (all != nullptr) *all = answer;
    return out;
  }

  test::TemporaryDirectory directory_;
  static constexpr std::chrono::milliseconds kAlways{0};
};

TEST_F(Followed, ChangedRunsAreSent) {
  train("a", 0, 2);
  train("b", 0, 3);
  FollowedRuns runs({path("a"), path("b"), path("b/../a")}, kAlways);
  json all;
  EXPECT_THAT(ask(runs, 0, &all), ElementsAre("a:2", "b:3"));
  EXPECT_EQ(all["version"], 1);
  EXPECT_EQ(all["waiting"], 0);
  EXPECT_EQ(all["grows"], false);
  EXPECT_THAT(ask(runs, 1), ElementsAre());
  train("b", 3, 4);
  EXPECT_THAT(ask(runs, 1, &all), ElementsAre("b:4"));
  EXPECT_EQ(all["runs"][0][0], 1);
  EXPECT_EQ(all["version"], 2);
  EXPECT_THAT(ask(runs, 2), ElementsAre());
  EXPECT_THAT(ask(runs, 1), ElementsAre("b:4")) << "for another page";
  EXPECT_THAT(ask(runs, 0), ElementsAre("a:2", "b:4"));
}

TEST_F(Followed, ASweepStandsForItsTrialsAsTheyBegin) {
  fs::create_directories(path("sweep/trials/0001"));
  train("sweep/trials/0000", 0, 1);
  train("z", 0, 1);
  test::write_file(path("sweep/sweep.jsonl"), "{}\n");
  FollowedRuns runs({path("sweep"), path("z")}, kAlways);
  json all;
  EXPECT_THAT(ask(runs, 0, &all), ElementsAre("0000:1", "z:1"));
  EXPECT_EQ(all["grows"], true);
  train("sweep/trials/0001", 0, 2);
  EXPECT_THAT(ask(runs, 1, &all), ElementsAre("0001:2"));
  EXPECT_EQ(all["runs"][0][0], 2) << "numbers stay";
}

TEST_F(Followed, RunsMayBeginLaterOrDisappear) {
  fs::create_directories(path("a"));
  fs::create_directories(path("sweep"));
  FollowedRuns runs({path("a"), path("sweep")}, kAlways);
  json all;
  EXPECT_THAT(ask(runs, 0, &all), ElementsAre());
  EXPECT_EQ(all["waiting"], 2);
  train("a", 0, 2);
  EXPECT_THAT(ask(runs, 0, &all), ElementsAre("a:2"));
  EXPECT_EQ(all["waiting"], 1);
  train("sweep/trials/a", 0, 1);
  test::write_file(path("sweep/sweep.jsonl"), "{}\n");
  // Two runs of the same name both get longer names, including the one that was there before.
  EXPECT_THAT(ask(runs, 1, &all),
              ElementsAre(path("a").string() + ":2", path("sweep/trials/a").string() + ":1"));
  EXPECT_EQ(all["waiting"], 0);
  fs::remove_all(path("a"));
  ask(runs, 2, &all);
  ASSERT_EQ(all["runs"].size(), 1U);
  EXPECT_EQ(all["runs"][0][1]["steps"], 2);
  EXPECT_THAT(all["runs"][0][1]["notes"][0], HasSubstr("the directory is gone"));
  EXPECT_THAT(ask(runs, 3), ElementsAre());
}

TEST_F(Followed, FilesAreCheckedAtIntervals) {
  train("a", 0, 2);
  FollowedRuns runs({path("a")}, std::chrono::hours(1));
  EXPECT_THAT(ask(runs, 0), ElementsAre("a:2"));
  train("a", 2, 3);
  EXPECT_THAT(ask(runs, 0), ElementsAre("a:2"));
}

TEST_F(Followed, MissingRunsAreRejected) {
  train("a", 0, 1);
  EXPECT_THAT(test::message_of<InputError>([&] { FollowedRuns({path("none")}, kAlways); }),
              HasSubstr("none: no such directory"));
  EXPECT_THAT(test::message_of<InputError>([&] { FollowedRuns({directory_.path()}, kAlways); }),
              HasSubstr("no run: it has neither config.toml nor"));
  FollowedRuns runs({path("a")}, kAlways);
  runs.stop();
  EXPECT_THROW(runs.changed_since(0), Error);
}

}  // namespace
}  // namespace muo::kit
