#include "trainer/checkpoint/run_directory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "kit/sweep/find_sweep.h"
#include "support/errors.h"
#include "support/files.h"
#include "trainer/options/config_file.h"
#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Each test runs with an empty current folder.
class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override { fs::current_path(directory_.path()); }
  void TearDown() override { fs::current_path(before_); }

  static trainer::RunDirectory find(const std::string& out, const std::string& resume = "") {
    trainer::TrainOptions options;
    options.run.out = out;
    options.run.resume = resume;
    return trainer::find_run_directory(options);
  }
  static std::string error_of(const std::string& out, const std::string& resume = "") {
    return test::message_of<InputError>([&] { find(out, resume); });
  }
  static void make_run(const fs::path& root, std::initializer_list<const char*> checkpoints) {
    FileLock lock;
    trainer::create_run_directory({root, {}}, trainer::TrainOptions(), lock);
    for (const char* name : checkpoints) {
      fs::create_directory(root / "checkpoints" / name);
      test::write_file(root / "checkpoints" / name / "manifest.json", "");
    }
  }

 private:
  test::TemporaryDirectory directory_;
  const fs::path before_ = fs::current_path();
};

TEST_F(RunDirectoryTest, IsNamedAfterTheTimeByDefault) {
  const std::string name = find("").root.string();
  EXPECT_THAT(name, testing::MatchesRegex("runs/20[0-9]+-[0-9]+-[0-9]+"));
  EXPECT_FALSE(fs::exists("runs"));
}

TEST_F(RunDirectoryTest, HoldingARunIsRejected) {
  make_run("a", {});
  EXPECT_THAT(error_of("a"), HasSubstr("--out a: holds a run already"));
  fs::create_directory("b");
  test::write_file("b/notes.txt", "mine");
  EXPECT_EQ(find("b").root, "b");
  test::write_file("c", "a file");
  EXPECT_THAT(error_of("c"), HasSubstr("is not a directory"));
}

TEST_F(RunDirectoryTest, ResumesFromARunOrACheckpoint) {
  make_run("a", {"step_00000010"});
  for (const char* given : {"a", "a/"}) {
    EXPECT_EQ(find("", given).root, "a");
    EXPECT_EQ(find("", given).resume, "a");
  }
  const trainer::RunDirectory run = find("", "a/checkpoints/step_00000010/");
  EXPECT_EQ(run.root, "a");
  EXPECT_EQ(run.resume, "a/checkpoints/step_00000010");
  EXPECT_EQ(find("./a", "a").root, "a");
}

TEST_F(RunDirectoryTest, AnotherOutStartsANewRunFromTheCheckpoint) {
  make_run("a", {"step_00000010"});
  const trainer::RunDirectory run = find("b", "a");
  EXPECT_EQ(run.root, "b");
  EXPECT_EQ(run.resume, "a");
  make_run("b", {});
  EXPECT_THAT(error_of("b", "a"), HasSubstr("--out b: holds a run already"));
}

TEST_F(RunDirectoryTest, ResumingNothingIsRefused) {
  EXPECT_THAT(error_of("", "nowhere"), HasSubstr("--resume nowhere: no checkpoint there"));
  make_run("a", {});
  EXPECT_THAT(error_of("", "a"), HasSubstr("--resume a: no checkpoint there"));
}

TEST_F(RunDirectoryTest, AutoResumesIfPossible) {
  EXPECT_EQ(find("a", "auto").root, "a");
  EXPECT_EQ(find("a", "auto").resume, "");
  make_run("a", {});  // killed before its first checkpoint
  EXPECT_EQ(find("a", "auto").root, "a");
  EXPECT_THAT(find("", "auto").root.string(), HasSubstr("runs/"));
  make_run("runs/20260101-000000-1", {"step_00000010"});
  make_run("runs/20260102-000000-1", {"step_00000005"});
  make_run("runs/20260103-000000-1", {});
  EXPECT_EQ(find("", "auto").root, "runs/20260102-000000-1");
  EXPECT_EQ(find("", "auto").resume, "runs/20260102-000000-1");
  make_run("runs/named", {"step_00000002", "step_00000004"});  // the last by name
  const auto saved_at = [](const std::string& run, int hour) {
    std::filesystem::last_write_time("runs/" + run + "/manifest.json",
                                     std::filesystem::file_time_type(std::chrono::hours(hour)));
  };
  saved_at("20260101-000000-1/checkpoints/step_00000010", 2);
  saved_at("20260102-000000-1/checkpoints/step_00000005", 1);
  saved_at("named/checkpoints/step_00000002", 9);
  saved_at("named/checkpoints/step_00000004", 0);
  EXPECT_EQ(find("", "auto").root, "runs/named");
  saved_at("named/checkpoints/step_00000002", -1);
  EXPECT_EQ(find("", "auto").root, "runs/20260101-000000-1");
}

TEST_F(RunDirectoryTest, ASweepIsNewOrTheNewestWithAJournal) {
  const auto sweep = [](const std::string& resume) {
    trainer::RunOptions options;
    options.resume = resume;
    return find_sweep_directory(options).string();
  };
  const auto is_new = testing::MatchesRegex("sweeps/20[0-9]+-[0-9]+-[0-9]+");
  EXPECT_THAT(sweep(""), is_new);
  fs::create_directories("sweeps/stopped");  // stopped before its first trial
  EXPECT_THAT(sweep("auto"), is_new);
  int hour = 0;
  for (const fs::path journal : {"sweeps/b/sweep.jsonl", "sweeps/a/sweep.jsonl"}) {
    fs::create_directory(journal.parent_path());
    test::write_file(journal, "{}");
    fs::last_write_time(journal, fs::file_time_type(std::chrono::hours(++hour)));
    EXPECT_EQ(sweep("auto"), journal.parent_path());
  }
}

TEST_F(RunDirectoryTest, HoldsTheOptions) {
  trainer::TrainOptions options;
  options.model.depth = 9;
  options.data.paths = {"x"};
  FileLock lock;
  trainer::create_run_directory({"deep/er", {}}, options, lock);
  trainer::TrainOptions read;
  trainer::load_config("deep/er/config.toml", trainer::read_config("deep/er/config.toml"),
                       trainer::option_table(read));
  EXPECT_EQ(read.model.depth, 9);
  EXPECT_EQ(read.data.paths, std::vector{fs::absolute(options.data.paths.at(0))});
  EXPECT_TRUE(fs::is_directory("deep/er/checkpoints"));
}

TEST_F(RunDirectoryTest, IsOfOneProcessAtATime) {
  EXPECT_FALSE(trainer::lock_run_directory({"a", {}})) << "there is nothing to lock";
  FileLock mine;
  trainer::create_run_directory({"a", {}}, trainer::TrainOptions(), mine);
  ASSERT_TRUE(mine);
  test::write_file("a/.run.json.12.tmp", "what a killed process left");
  EXPECT_EQ(
      test::message_of<InputError>([] {
        static_cast<void>(trainer::lock_run_directory({"a", {}}));
      }),
      fmt::format("--out a: in use by {}, which holds a/run.lock: wait until it ends, end it, "
                  "or give another directory",
                  test::read_file("a/run.lock")));
  EXPECT_THAT(test::read_file("a/run.lock"),
              testing::StartsWith(fmt::format("process {} on ", getpid())));
  EXPECT_TRUE(fs::exists("a/.run.json.12.tmp"));
  mine = {};
  EXPECT_TRUE(trainer::lock_run_directory({"a", {}}));
  EXPECT_FALSE(fs::exists("a/.run.json.12.tmp"));
}

// Two processes begin at the same time: neither finds the other's run, and one locks first.
TEST_F(RunDirectoryTest, ThatAnotherProcessTookMeanwhileIsRefused) {
  trainer::TrainOptions options;
  options.run.out = "a";
  const trainer::RunDirectory run = trainer::find_run_directory(options);
  FileLock lock = trainer::lock_run_directory(run);
  make_run("a", {});  // by another process, which has ended since
  EXPECT_THAT(
      test::message_of<InputError>([&] { trainer::create_run_directory(run, options, lock); }),
      HasSubstr("holds a run already"));
}

TEST_F(RunDirectoryTest, ThatCannotBeMadeIsRefused) {
  test::write_file("file", "");
  EXPECT_THAT(test::message_of<WriteError>([] {
                FileLock lock;
                trainer::create_run_directory({"file/run", {}}, trainer::TrainOptions(), lock);
              }),
              HasSubstr("cannot create file: Not a directory"));
}

}  // namespace
}  // namespace muo::kit
