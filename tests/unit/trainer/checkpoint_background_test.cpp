#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "support/checkpoint_state.h"
#include "support/errors.h"
#include "support/files.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_saver.h"

// Background saves, and the removal of older checkpoints after them.
namespace muo::trainer {
namespace {

using test::message_of;
using test::names_in;
using test::RankState;
using test::save_state;
using test::TemporaryDirectory;
using test::wrong_after_load;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kWorld = 3;

// Calls body(rank, state, staging) on each rank.
template <class Body>
void with_ranks(const Body& body, const WatchOptions& watch = {}) {
  DeviceGroup group({.world = kWorld, .watch = watch});
  group.run([&](RankContext& rank) {
    RankState state(rank.rank, kWorld);
    CheckpointSaver::Staging staging(rank, state.entries());
    rank.device.seal();
    body(rank, state, staging);
  });
}

void expect_whole(const std::filesystem::path& run, std::int64_t step) {
  const Checkpoint checkpoint(checkpoint_directory(run, step));
  EXPECT_EQ(checkpoint.info().step, step);
  EXPECT_THAT(wrong_after_load(checkpoint, 2, static_cast<std::uint64_t>(step)), IsEmpty());
}

TEST(BackgroundSave, SavesTheValuesAtItsStartHoweverSlowTheDisk) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld);
  std::latch goes_on(1);
  saver.on_change([&](std::string_view) { goes_on.wait(); });
  with_ranks([&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
    state.fill(7);
    saver.start(rank, {.step = 7}, state.entries(), staging);
    state.fill(8);  // training continues
    EXPECT_THAT(names_in(run.path() / "checkpoints"), IsEmpty());
    rank.barrier.arrive([&] { goes_on.count_down(); });
    saver.wait();
    EXPECT_TRUE(std::filesystem::exists(checkpoint_directory(run.path(), 7)));
  });
  const std::vector<SaveResult> results = saver.take_results();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].failure, "");
  EXPECT_GT(results[0].bytes, 0);
  expect_whole(run.path(), 7);
}

TEST(BackgroundSave, WaitsForThePreviousOne) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld);
  saver.on_change(
      [](std::string_view) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  with_ranks([&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
    for (std::int64_t step = 1; step <= 6; ++step) {
      state.fill(static_cast<std::uint64_t>(step));
      if (step % 3 == 0)
        saver.write(rank, {.step = step}, state.entries());
      else
        saver.start(rank, {.step = step}, state.entries(), staging);
    }
  });
  EXPECT_EQ(saver.take_results().size(), 6U);
  for (std::int64_t step = 1; step <= 6; ++step)
    expect_whole(run.path(), step);
}

// The trials of a sweep do this: each has its own saver.
TEST(BackgroundSave, SaversOfSeveralRunsShareStagingMemory) {
  const TemporaryDirectory runs[4];
  std::unique_ptr<CheckpointSaver> savers[4];
  with_ranks([&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
    for (std::size_t i = 0; i < 4; ++i) {
      rank.barrier.arrive([&] {
        savers[i] = std::make_unique<CheckpointSaver>(runs[i].path(), kWorld);
        savers[i]->on_change(
            [](std::string_view) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
        if (i >= 2) savers[i - 2].reset();  // its save has ended, because that of i - 1 has started
      });
      const auto step = static_cast<std::int64_t>(i) + 1;
      state.fill(static_cast<std::uint64_t>(step));
      savers[i]->start(rank, {.step = step}, state.entries(), staging);
      state.fill(99);
    }
    savers[3]->wait();
  });
  for (std::size_t i = 0; i < 4; ++i)
    expect_whole(runs[i].path(), static_cast<std::int64_t>(i) + 1);
}

TEST(BackgroundSave, ReportsItsFailureAndTheNextOneSucceeds) {
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 1, 1);
  CheckpointSaver saver(run.path(), kWorld);
  std::atomic<bool> broken = true;
  saver.on_change([&](std::string_view change) {
    if (broken && change == "sync a file") throw Error("planted failure");
  });
  with_ranks([&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
    state.fill(2);
    saver.start(rank, {.step = 2}, state.entries(), staging);
    saver.wait();
    rank.barrier.arrive([&] {
      const std::vector<SaveResult> results = saver.take_results();
      ASSERT_EQ(results.size(), 1U);
      EXPECT_EQ(results[0].failure, "checkpoint of step 2 not saved: planted failure");
      EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000001"));
      broken = false;
    });
    state.fill(3);
    saver.start(rank, {.step = 3}, state.entries(), staging);
    saver.wait();
  });
  EXPECT_EQ(saver.take_results().at(0).failure, "");
  expect_whole(run.path(), 3);
}

// A state that was copied before a rank failed is saved.
TEST(BackgroundSave, IsFinishedWhenTheRunFails) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld);
  saver.on_change(
      [](std::string_view) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  const std::string message = message_of<Error>([&] {
    with_ranks([&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
      state.fill(4);
      saver.start(rank, {.step = 4}, state.entries(), staging);
      if (rank.rank == 1) throw Error("another failure");
      saver.wait();
    });
  });
  EXPECT_THAT(message, HasSubstr("another failure"));
  expect_whole(run.path(), 4);
}

TEST(BackgroundSave, IsCancelledWhenTheRunFailsAndTheDiskIsSlow) {
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 1, 1);
  CheckpointSaver saver(run.path(), kWorld);
  saver.on_change([](std::string_view change) {
    if (change == "write a range") std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(
      with_ranks([&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
        state.fill(2);
        saver.start(rank, {.step = 2}, state.entries(), staging);
        throw Error("another failure");
      }),
      Error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
  EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000001"));
}

// One disk is slower than the watchdog's timeout but makes progress; the other hangs.
TEST(BackgroundSave, TheWatchdogDetectsADiskThatHangs) {
  const WatchOptions watch{.stuck_after = std::chrono::milliseconds(600)};
  for (const bool alive : {true, false}) {
    const TemporaryDirectory run;
    CheckpointSaver saver(run.path(), kWorld);
    std::atomic<bool> over = false;
    saver.on_change([&](std::string_view change) {
      if (alive) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      if (!alive && change == "sync a file") over.wait(false);
    });
    const std::string message = message_of<Error>([&] {
      with_ranks(
          [&](RankContext& rank, RankState& state, CheckpointSaver::Staging& staging) {
            state.fill(1);
            rank.progress.enter("the saving of a checkpoint");
            saver.start(rank, {.step = 1}, state.entries(), staging);
            try {
              saver.wait();
            } catch (...) {
              over = true;
              over.notify_all();
              throw;
            }
          },
          watch);
    });
    if (alive) {
      EXPECT_EQ(message, "no exception");
      expect_whole(run.path(), 1);
    } else {
      EXPECT_THAT(message, HasSubstr("while in the saving of a checkpoint, waiting for files"));
    }
  }
}

void damage(const std::filesystem::path& checkpoint) {
  std::string bytes = test::read_file(checkpoint / "model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_file(checkpoint / "model.safetensors", bytes);
}

std::vector<std::int64_t> steps_in(const std::filesystem::path& run) {
  std::vector<std::int64_t> steps;
  for (const FoundCheckpoint& found : find_checkpoints(run))
    steps.push_back(found.step);
  return steps;
}

std::vector<std::string> prune(const std::filesystem::path& run, const KeepCheckpoints& keep,
                               std::int64_t step) {
  CheckpointPruning pruning(run, keep);
  return pruning.prune(step, [](std::string_view) {});
}

TEST(CheckpointPruning, KeepsTheNewestAndThoseOfRoundSteps) {
  const TemporaryDirectory run;
  for (std::int64_t step = 1; step <= 7; ++step)
    save_state(run.path(), 1, step, static_cast<std::uint64_t>(step));
  EXPECT_THAT(prune(run.path(), {}, 7), IsEmpty());
  EXPECT_THAT(prune(run.path(), {.last = 10}, 7), IsEmpty());
  EXPECT_EQ(steps_in(run.path()).size(), 7U);
  prune(run.path(), {.last = 2, .every = 3}, 7);
  EXPECT_THAT(steps_in(run.path()), ElementsAre(7, 6, 3));
  prune(run.path(), {.last = 1}, 7);
  EXPECT_THAT(steps_in(run.path()), ElementsAre(7));
  EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000007"));
}

// A damaged checkpoint does not count as kept, which would cost a good one, and is not removed
// either. Checkpoints newer than the one just saved, and other files, are not touched.
TEST(CheckpointPruning, CountsOnlyUndamagedOnesAndKeepsEverythingElse) {
  const TemporaryDirectory run;
  for (std::int64_t step = 1; step <= 6; ++step)
    save_state(run.path(), 1, step, static_cast<std::uint64_t>(step));
  damage(checkpoint_directory(run.path(), 5));
  std::filesystem::remove(checkpoint_directory(run.path(), 1) / "manifest.json");
  const auto parent = run.path() / "checkpoints";
  for (const char* const name : {"step_00000000", "notes", ".step_00000002.mine"})
    std::filesystem::create_directory(parent / name);
  save_state(run.path(), 1, 9, 9);
  prune(run.path(), {.last = 2}, 6);
  EXPECT_THAT(names_in(parent),
              ElementsAre(".step_00000002.mine", "notes", "step_00000000", "step_00000001",
                          "step_00000004", "step_00000005", "step_00000006", "step_00000009"));
}

TEST(CheckpointPruning, FollowsTheSaveAndItsFailureDoesNotFailTheSave) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld, {.last = 1});
  std::atomic<bool> broken = false;
  saver.on_change([&](std::string_view change) {
    if (change != "remove an old checkpoint") return;
    EXPECT_TRUE(std::filesystem::exists(checkpoint_directory(run.path(), broken ? 2 : 3)));
    if (broken) throw Error("planted failure");
  });
  save_state(saver, kWorld, {.step = 1}, 1);
  broken = true;
  save_state(saver, kWorld, {.step = 2}, 2);
  EXPECT_THAT(steps_in(run.path()), ElementsAre(2, 1));
  const std::vector<SaveResult> results = saver.take_results();
  ASSERT_EQ(results.at(1).notes.size(), 1U);
  EXPECT_THAT(results[1].notes[0], HasSubstr("step_00000001 is not removed: planted failure"));
  EXPECT_EQ(results[1].failure, "");
  broken = false;
  save_state(saver, kWorld, {.step = 3}, 3);
  EXPECT_THAT(steps_in(run.path()), ElementsAre(3));
  expect_whole(run.path(), 3);
}

TEST(CheckpointPruning, AFailedSaveRemovesNothing) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), kWorld, {.last = 1});
  save_state(saver, kWorld, {.step = 1}, 1);
  saver.on_change([](std::string_view change) {
    if (change == "rename") throw Error("planted failure");
  });
  EXPECT_THROW(save_state(saver, kWorld, {.step = 2}, 2), Error);
  EXPECT_THAT(steps_in(run.path()), ElementsAre(1));
}

}  // namespace
}  // namespace muo::trainer
