#include "trainer/checkpoint/checkpoint_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "support/checkpoint_state.h"
#include "support/errors.h"
#include "support/failing_call.h"
#include "support/files.h"
#include "support/split_tensor.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo::trainer {
namespace {

using test::message_of;
using test::names_in;
using test::RankState;
using test::save_state;
using test::TemporaryDirectory;
using test::write_file;
using test::wrong_after_load;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kWorld = 3;

// The step of the checkpoint that a resumed run would use; -1: none. Fails the test if that
// checkpoint is not complete.
std::int64_t newest_whole_step(const std::filesystem::path& run) {
  std::vector<std::string> skipped;
  const std::optional<Checkpoint> newest = newest_checkpoint(run, skipped);
  EXPECT_THAT(skipped, IsEmpty());
  if (!newest) return -1;
  const std::int64_t step = newest->info().step;
  EXPECT_THAT(wrong_after_load(*newest, 2, static_cast<std::uint64_t>(step)), IsEmpty());
  return step;
}

// The file changes of saving a second checkpoint, in one possible order of the rank threads.
std::vector<std::string> changes_of_a_save() {
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 1, 1);
  std::vector<std::string> changes;
  std::mutex mutex;
  CheckpointSaver saver(run.path(), kWorld);
  saver.on_change([&](std::string_view change) {
    const std::lock_guard lock(mutex);
    changes.emplace_back(change);
  });
  save_state(saver, kWorld, {.step = 2}, 2);
  return changes;
}

// The index of the change that makes the new checkpoint visible.
std::size_t renaming(const std::vector<std::string>& changes) {
  return static_cast<std::size_t>(std::ranges::find(changes, "rename") - changes.begin());
}

TEST(CheckpointSaver, FailingAtAnyChangeLeavesThePreviousCheckpoint) {
  const std::vector<std::string> changes = changes_of_a_save();
  ASSERT_GT(changes.size(), 10U);
  ASSERT_LT(renaming(changes), changes.size());
  for (std::size_t k = 0; k < changes.size(); ++k) {
    const TemporaryDirectory run;
    save_state(run.path(), kWorld, 1, 1);
    CheckpointSaver saver(run.path(), kWorld);
    std::atomic<std::size_t> count = 0;
    saver.on_change([&](std::string_view) {
      if (count++ == k) throw Error("planted failure");
    });
    std::atomic<int> notified = 0;  // ranks that were notified
    DeviceGroup group({.world = kWorld});
    const std::string message = message_of<Error>([&] {
      group.run([&](RankContext& rank) {
        RankState state(rank.rank, kWorld);
        state.fill(2);
        try {
          saver.save(rank, {.step = 2}, state.entries());
        } catch (const std::runtime_error& error) {
          EXPECT_THAT(error.what(), HasSubstr("step 2 not saved: planted failure"));
          ++notified;
          throw;
        }
      });
    });
    EXPECT_THAT(message, HasSubstr("planted failure"));
    EXPECT_FALSE(saver.take_results().at(0).is_write_error);
    EXPECT_EQ(notified, kWorld) << changes[k];
    const bool committed = k > renaming(changes);
    EXPECT_EQ(newest_whole_step(run.path()), committed ? 2 : 1) << changes[k];
    EXPECT_EQ(names_in(run.path() / "checkpoints").size(), committed ? 2U : 1U) << changes[k];
  }
}

// Covers a run without checkpoints, and a save that replaces one checkpoint and removes an older
// one. A failed removal is noted, but does not make a save fail.
TEST(CheckpointSaver, FailsWithAnySyncOfItsFilesAndDirectories) {
  for (const bool replaces : {false, true}) {
    int syncs = 0;
    for (bool failed = true; failed; syncs += failed ? 1 : 0) {
      SCOPED_TRACE(concat("sync ", syncs + 1, replaces ? ", replacing" : ""));
      const TemporaryDirectory run;
      for (const std::int64_t step : {1, 2})
        if (replaces) save_state(run.path(), kWorld, step, 2);
      CheckpointSaver saver(run.path(), kWorld, {.last = 1});
      {
        const test::FailingCall call("fsync", syncs + 1);
        const std::string message =
            message_of<Error>([&] { save_state(saver, kWorld, {.step = 2}, 2); });
        failed = call.has_failed();
        const SaveResult result = saver.take_results().at(0);
        EXPECT_EQ(message == "no exception", result.failure.empty());
        EXPECT_EQ(result.is_write_error, !result.failure.empty());
        EXPECT_THAT(result.notes.empty() ? result.failure : result.notes[0],
                    HasSubstr(failed ? "Input/output error" : ""));
        EXPECT_EQ(result.failure.empty() && result.notes.empty(), !failed);
      }
      if (replaces) {
        EXPECT_EQ(newest_whole_step(run.path()), 2);
      }
      save_state(saver, kWorld, {.step = 3}, 3);
      EXPECT_EQ(newest_whole_step(run.path()), 3);
      EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000003"));
    }
    // Four files are synced, their directory, and "checkpoints" after the rename. A new run first
    // syncs the two parents of "checkpoints"; otherwise the removal of the older checkpoint syncs
    // once.
    EXPECT_EQ(syncs, replaces ? 7 : 8);
  }
}

TEST(CheckpointSaver, TheHookPrecedesTheCommitAndMayAddANote) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld);
  std::vector<std::string> there;  // checkpoints that exist when the log is flushed
  saver.before_commit([&] {
    for (const std::string& name : names_in(run.path() / "checkpoints"))
      if (name[0] != '.') there.push_back(name);
    there.emplace_back("log");
    return there.size() == 1 ? "" : "late";
  });
  save_state(saver, kWorld, {.step = 1}, 1);
  save_state(saver, kWorld, {.step = 2}, 2);
  EXPECT_THAT(there, ElementsAre("log", "step_00000001", "log"));
  const std::vector<SaveResult> results = saver.take_results();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_THAT(results[0].notes, IsEmpty());
  EXPECT_THAT(results[1].notes, ElementsAre("late"));
}

// The process dies without running any further code, as in a power failure.
TEST(CheckpointSaver, DyingAtAnyChangeLeavesThePreviousCheckpointAndTheNextSaveCleansUp) {
  const std::vector<std::string> changes = changes_of_a_save();
  for (std::size_t k = 0; k < changes.size(); ++k) {
    const TemporaryDirectory run;
    save_state(run.path(), kWorld, 1, 1);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      CheckpointSaver saver(run.path(), kWorld);
      std::atomic<std::size_t> count = 0;
      saver.on_change([&](std::string_view) {
        if (count++ == k) _exit(42);
      });
      save_state(saver, kWorld, {.step = 2}, 2);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 42) << changes[k];
    EXPECT_EQ(newest_whole_step(run.path()), k > renaming(changes) ? 2 : 1) << changes[k];

    save_state(run.path(), kWorld, 3, 3);
    EXPECT_EQ(newest_whole_step(run.path()), 3);
    for (const std::string& name : names_in(run.path() / "checkpoints"))
      EXPECT_THAT(name, testing::StartsWith("step_")) << changes[k];
  }
}

// If a disk hangs, the watchdog ends the program. The cases run concurrently, because they mostly
// wait.
TEST(CheckpointSaver, HangingAtAnyChangeEndsTheProgramAndLeavesWholeCheckpoints) {
  const std::vector<std::string> changes = changes_of_a_save();
  const TemporaryDirectory directory;
  std::vector<pid_t> children;
  const auto run = [&](std::size_t k) { return directory.path() / std::to_string(k); };
  for (std::size_t k = 0; k < changes.size(); ++k) {
    std::filesystem::create_directory(run(k));
    save_state(run(k), kWorld, 1, 1);
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() != 0) continue;
    static_cast<void>(std::freopen("/dev/null", "w", stderr));
    CheckpointSaver saver(run(k), kWorld);
    std::atomic<std::size_t> count = 0;
    saver.on_change([&](std::string_view) {
      if (count++ != k) return;
      for (;;)
        pause();
    });
    const std::chrono::milliseconds timeout(1000);
    save_state(saver, kWorld, {.step = 2}, 2, {.stuck_after = timeout, .grace = timeout});
    _exit(0);
  }
  for (std::size_t k = 0; k < changes.size(); ++k) {
    int status = 0;
    ASSERT_EQ(waitpid(children[k], &status, 0), children[k]);
    ASSERT_TRUE(WIFEXITED(status)) << changes[k];
    EXPECT_EQ(WEXITSTATUS(status), 3) << changes[k];
    EXPECT_EQ(newest_whole_step(run(k)), k > renaming(changes) ? 2 : 1) << changes[k];
    save_state(run(k), kWorld, 3, 3);
    for (const std::string& name : names_in(run(k) / "checkpoints"))
      EXPECT_THAT(name, testing::StartsWith("step_")) << changes[k];
  }
}

TEST(CheckpointSaver, ReplacesACheckpointOfTheSameStep) {
  const TemporaryDirectory run;
  save_state(run.path(), 2, 5, 1);
  save_state(run.path(), 3, 5, 2);
  EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000005"));
  EXPECT_THAT(wrong_after_load(Checkpoint(run.path()), 1, 2), IsEmpty());
}

// If syncing the new name fails, the disk may still hold the old one.
TEST(CheckpointSaver, KeepsAReplacedCheckpointUntilTheNewOneIsSafe) {
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 5, 1);
  CheckpointSaver saver(run.path(), kWorld);
  saver.on_change([](std::string_view change) {
    if (change == "sync the run directory") throw Error("planted failure");
  });
  EXPECT_THROW(save_state(saver, kWorld, {.step = 5}, 2), Error);
  const std::vector<std::string> names = names_in(run.path() / "checkpoints");
  EXPECT_THAT(names, ElementsAre(testing::StartsWith(".step_00000005.old-"), "step_00000005"));
  const Checkpoint old(run.path() / "checkpoints" / names[0]);
  EXPECT_THAT(wrong_after_load(old, 1, 1), IsEmpty());
}

TEST(CheckpointSaver, IsUsedForManySaves) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld);
  DeviceGroup group({.world = kWorld});
  group.run([&](RankContext& rank) {
    RankState state(rank.rank, kWorld);
    for (std::int64_t step = 1; step <= 4; ++step) {
      state.fill(static_cast<std::uint64_t>(step));
      saver.save(rank, {.step = step}, state.entries());
    }
  });
  for (std::int64_t step = 1; step <= 4; ++step) {
    const Checkpoint checkpoint(checkpoint_directory(run.path(), step));
    EXPECT_THAT(wrong_after_load(checkpoint, 2, static_cast<std::uint64_t>(step)), IsEmpty());
  }
}

TEST(CheckpointSaver, LeavesTheTemporaryDirectoriesOfLivingSaversAlone) {
  const TemporaryDirectory run;
  const auto parent = run.path() / "checkpoints";
  for (const char* const name :
       {".step_00000001.tmp-1", ".step_00000002.tmp-1", ".step_00000003.old-1", ".stepson"}) {
    std::filesystem::create_directories(parent / name);
    write_file(parent / name / "x", "x");
  }
  const FileLock living = FileLock::try_directory(parent / ".step_00000002.tmp-1");
  ASSERT_TRUE(living);
  save_state(run.path(), 2, 5, 1);
  EXPECT_THAT(names_in(parent), ElementsAre(".step_00000002.tmp-1", ".stepson", "step_00000005"));
}

TEST(CheckpointSaver, ReportsAFullDiskWithPathReasonAndAdvice) {
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 1, 1);
  CheckpointSaver saver(run.path(), kWorld);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 512;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<Error>([&] { save_state(saver, kWorld, {.step = 2}, 2); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  EXPECT_THAT(message, AllOf(HasSubstr("model.safetensors"), HasSubstr("File too large"),
                             HasSubstr("free space or write elsewhere (--out)")));
  EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000001"));

  save_state(saver, kWorld, {.step = 3}, 3);
  EXPECT_EQ(newest_whole_step(run.path()), 3);
}

TEST(CheckpointSaver, ReportsAPathThatCannotBeADirectory) {
  const TemporaryDirectory run;
  write_file(run.path() / "checkpoints", "");
  EXPECT_THAT(message_of<Error>([&] { save_state(run.path(), 2, 1, 1); }),
              AllOf(HasSubstr((run.path() / "checkpoints").string()), HasSubstr("--out")));
}

TEST(CheckpointSaver, RefusesPartsThatDoNotCoverATensorOnce) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), 2);
  const test::HostTensor values({3});
  // The error message if rank r writes elements [3 r + shift[r], ...) of a tensor of `numel`
  // elements.
  const auto message = [&](std::int64_t shift0, std::int64_t shift1, std::int64_t numel) {
    return message_of<Error>([&] {
      DeviceGroup group({.world = 2});
      group.run([&](RankContext& rank) {
        const std::int64_t begin = rank.rank == 0 ? shift0 : 3 + shift1;
        const std::vector<StateEntry> entries = {
            {.name = "w", .shape = {numel}, .begin = begin, .values = values}};
        saver.save(rank, {.step = 1}, entries);
      });
    });
  };
  EXPECT_EQ(message(0, 0, 6), "no exception");
  EXPECT_THAT(message(0, 1, 7), HasSubstr("w: elements from 3 to 4 have no writer, or two"));
  EXPECT_THAT(message(0, -1, 5), HasSubstr("w: elements from 3 to 2 have no writer, or two"));
  EXPECT_THAT(message(1, 1, 7), HasSubstr("w: elements from 0 to 1"));
  EXPECT_THAT(message(0, 0, 7), HasSubstr("w: elements from 6 to 7 have no writer"));
  EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000001"));
}

// Split masters are saved as the fp32 numbers that they represent, by foreground and background
// saves, in several chunks of 4 MiB, and are restored from fp32 and from bf16.
TEST(CheckpointSaver, JoinsAndSplitsMasters) {
  constexpr std::int64_t kCount = (5 << 18) + 3;
  const test::HostTensor values = test::random_tensor({kCount}, "w");
  for (float& value : values.values())
    value = test::split_and_joined(value);
  const test::SplitTensor split(values);
  const test::HostTensor narrow = values.rounded(DType::kBF16);
  const auto entries_of = [&](const test::SplitTensor& w) {
    return std::vector<StateEntry>{
        {.name = "w", .shape = {kCount}, .values = w.lower, .upper = w.upper},
        {.name = "b", .shape = {kCount}, .values = narrow}};
  };
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), 1);
  DeviceGroup group({.world = 1});
  group.run([&](RankContext& rank) {
    const std::vector<StateEntry> entries = entries_of(split);
    CheckpointSaver::Staging staging(rank, entries);
    saver.save(rank, {.step = 1}, entries);
    saver.start(rank, {.step = 2}, entries, staging);
    saver.wait();
  });
  test::KernelStream stream;
  for (const std::int64_t step : {1, 2}) {
    const Checkpoint checkpoint(checkpoint_directory(run.path(), step));
    const std::vector<SafetensorsSpec>& saved = checkpoint.manifest().files[0].tensors;
    EXPECT_EQ(std::ranges::find(saved, "w", &SafetensorsSpec::name)->dtype, DType::kF32);
    const test::HostTensor whole({kCount});
    const test::SplitTensor again{test::HostTensor({kCount})};
    const test::SplitTensor widened{test::HostTensor({kCount - 7})};
    const std::vector<StateEntry> entries = {
        {.name = "w", .shape = {kCount}, .values = whole},
        {.name = "w", .shape = {kCount}, .values = again.lower, .upper = again.upper},
        {.name = "b",
         .shape = {kCount},
         .begin = 7,
         .values = widened.lower,
         .upper = widened.upper}};
    checkpoint.load(stream, entries);
    EXPECT_TRUE(whole.doubles() == values.doubles());
    EXPECT_TRUE(again.joined().doubles() == values.doubles());
    const std::vector<double> rounded = narrow.doubles();
    EXPECT_TRUE(widened.joined().doubles() ==
                std::vector<double>(rounded.begin() + 7, rounded.end()));
  }
}

TEST(CheckpointSaver, RefusesNumbersThatAreNotFinite) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), 2);
  save_state(saver, 2, {.step = 1}, 1);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      const auto save = [&](float value) {
        DeviceGroup group({.world = 2});
        group.run([&](RankContext& rank) {
          const test::HostTensor values =
              test::HostTensor({1000}, std::vector<float>(1000, 0.5F)).rounded(dtype);
          if (rank.rank == 1) {
            if (dtype == DType::kF32)
              values.values()[999] = value;
            else
              values.tensor().as<BF16>()[999] = to_bf16(value);
          }
          const std::vector<StateEntry> entries = {{.name = "w",
                                                    .shape = {2000},
                                                    .begin = std::int64_t{1000} * rank.rank,
                                                    .values = values}};
          saver.save(rank, {.step = 2}, entries);
        });
      };
      EXPECT_THAT(message_of<Error>([&] { save(bad); }), HasSubstr("w has a non-finite number"));
      EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000001"));
      EXPECT_NO_THROW(save(std::numeric_limits<float>::max() / 2));
      std::filesystem::remove_all(checkpoint_directory(run.path(), 2));
    }
}

TEST(CheckpointSaver, RemovesWhatABrokenGroupInterrupted) {
  const TemporaryDirectory run;
  {
    CheckpointSaver saver(run.path(), 2);
    DeviceGroup group({.world = 2});
    const auto save = [&](RankContext& rank) {
      RankState state(rank.rank, 2);
      rank.barrier.arrive([&] {
        saver.on_change([&rank](std::string_view change) {
          if (change == "write a range") rank.barrier.break_all();
        });
      });
      saver.save(rank, {.step = 1}, state.entries());
    };
    EXPECT_THROW(group.run(save), Error);
    EXPECT_EQ(names_in(run.path() / "checkpoints").size(), 1U);
  }
  EXPECT_THAT(names_in(run.path() / "checkpoints"), IsEmpty());
}

TEST(MoveDirectory, ReplacesWithAndWithoutAnAtomicExchange) {
  for (const Replace how : {Replace::kExchange, Replace::kTwoRenames}) {
    const TemporaryDirectory directory;
    const auto path = [&directory](const char* name) { return directory.path() / name; };
    make_directory(path("new"));
    write_file(path("new") / "new", "");
    move_directory(path("new"), path("target"), path("aside"), how);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("target"));

    make_directory(path("newer"));
    write_file(path("newer") / "newer", "");
    move_directory(path("newer"), path("target"), path("aside"), how);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("aside", "target"));
    EXPECT_THAT(names_in(path("target")), ElementsAre("newer"));
    EXPECT_THAT(names_in(path("aside")), ElementsAre("new"));
    EXPECT_THROW(move_directory(path("absent"), path("target"), path("aside2"), how), Error);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("aside", "target"));
  }
}

// On a file system without atomic exchange.
TEST(MoveDirectory, LeavesTheOldOneInItsPlaceWhenARenameFails) {
  for (const auto& [function, count] : {std::pair("renameat2", 1), std::pair("rename", 2)})
    for (int n = 1; n <= count; ++n) {
      const TemporaryDirectory directory;
      const auto path = [&directory](const char* name) { return directory.path() / name; };
      for (const char* const name : {"old", "new"}) {
        make_directory(path(name));
        write_file(path(name) / name, "");
      }
      const test::FailingCall call(function, n);
      EXPECT_THAT(message_of<WriteError>([&] {
                    move_directory(path("new"), path("old"), path("aside"), Replace::kTwoRenames);
                  }),
                  HasSubstr("Input/output error"));
      EXPECT_TRUE(call.has_failed());
      EXPECT_THAT(names_in(directory.path()), ElementsAre("new", "old"));
      EXPECT_THAT(names_in(path("old")), ElementsAre("old"));
      EXPECT_THAT(names_in(path("new")), ElementsAre("new"));
    }
}

}  // namespace
}  // namespace muo::trainer
