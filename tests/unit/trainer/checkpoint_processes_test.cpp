#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/durable_files.h"
#include "support/checkpoint_state.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/processes.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_saver.h"

// Checkpoints written by several processes together.
namespace muo::trainer {
namespace {

using test::as_processes;
using test::message_of;
using test::names_in;
using test::RankState;
using test::run_ranks;
using test::save_state;
using test::TemporaryDirectory;
using test::wrong_after_load;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int kWorld = 4;
using Worlds = std::vector<int>;  // ranks of each process

enum class How : std::uint8_t { kWait, kBackground };

CheckpointInfo info_of(std::int64_t step) {
  return {.step = step, .seed = 5, .config = "{\"a\": 1}"};
}

// Saves `steps` in one process of the world, each step with its own values.
void save_steps(ProcessGroup& processes, CheckpointSaver& saver, How how,
                const std::vector<std::int64_t>& steps) {
  run_ranks(processes, [&](RankContext& rank) {
    RankState state(rank.rank, rank.world);
    CheckpointSaver::Staging staging(rank, state.entries());
    for (const std::int64_t step : steps) {
      state.fill(static_cast<std::uint64_t>(step));
      if (how == How::kBackground)
        saver.start(rank, info_of(step), state.entries(), staging);
      else
        saver.write(rank, info_of(step), state.entries());
    }
    saver.wait();
  });
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Contents of all files below a folder, by name.
std::map<std::string, std::string> files_below(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory))
    if (item.is_regular_file())
      files[std::filesystem::relative(item.path(), directory)] = test::read_file(item.path());
  return files;
}

TEST(CheckpointProcesses, WriteTheFilesOfOneProcess) {
  const TemporaryDirectory one;
  {
    CheckpointSaver saver(one.path(), kWorld);
    save_state(saver, kWorld, info_of(1), 1);
    save_state(saver, kWorld, info_of(2), 2);
  }
  for (const Worlds& worlds : {Worlds{4}, {2, 2}, {1, 1, 1, 1}, {1, 3}, {3, 1}})
    for (const How how : {How::kWait, How::kBackground}) {
      const TemporaryDirectory run;
      std::vector<std::vector<SaveResult>> results(worlds.size());
      EXPECT_THAT(as_processes(worlds,
                               [&](ProcessGroup& processes) {
                                 CheckpointSaver saver(run.path(), kWorld, {}, &processes);
                                 save_steps(processes, saver, how, {1, 2});
                                 results[static_cast<std::size_t>(processes.process())] =
                                     saver.take_results();
                               }),
                  Each(""));
      EXPECT_TRUE(files_below(run.path()) == files_below(one.path())) << worlds.size();
      EXPECT_THAT(names_in(run.path() / "checkpoints"),
                  ElementsAre("step_00000001", "step_00000002"));
      for (const std::vector<SaveResult>& result : results) {
        ASSERT_EQ(result.size(), 2U);
        EXPECT_EQ(result[1].failure, "");
        EXPECT_EQ(result[1].bytes, results[0][1].bytes);
        EXPECT_EQ(result[1].step, 2);
      }
    }
}

TEST(CheckpointProcesses, WriteWhatOneProcessCanResume) {
  const TemporaryDirectory run;
  as_processes({1, 3}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    save_steps(processes, saver, How::kWait, {7});
  });
  const Checkpoint checkpoint(run.path());
  EXPECT_EQ(checkpoint.info().world, kWorld);
  for (const int world : {1, 4})
    EXPECT_THAT(wrong_after_load(checkpoint, world, 7), IsEmpty());
}

struct Change {
  int process;
  std::string word;
};

// All file changes of a save by these processes, in one possible order of threads.
std::vector<Change> changes_of_a_save(const Worlds& worlds) {
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 1, 1);
  std::vector<Change> changes;
  std::mutex mutex;
  as_processes(worlds, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    saver.on_change([&](std::string_view change) {
      const std::lock_guard lock(mutex);
      changes.push_back({.process = processes.process(), .word = std::string(change)});
    });
    save_steps(processes, saver, How::kWait, {2});
  });
  return changes;
}

// The changes of one process.
std::vector<std::string> words_of(const std::vector<Change>& changes, int process) {
  std::vector<std::string> words;
  for (const Change& change : changes)
    if (change.process == process) words.push_back(change.word);
  return words;
}

// On a file system shared by several hosts, only the writer can sync its writes, and must do so
// before process 0 commits.
TEST(CheckpointProcesses, SyncTheirWritesBeforeTheCommit) {
  const std::vector<Change> changes = changes_of_a_save({2, 1, 1});
  const auto commit = std::ranges::find(changes, "write a header", &Change::word);
  ASSERT_NE(commit, changes.end());
  for (const int process : {0, 1, 2}) {
    const auto of_before = words_of({changes.begin(), commit}, process);
    ASSERT_GT(of_before.size(), 4U);
    EXPECT_EQ(of_before[of_before.size() - 3], "write a range");
    EXPECT_EQ(of_before[of_before.size() - 2], "sync a file");
    EXPECT_EQ(of_before[of_before.size() - 1], "sync a file");
    if (process > 0) {
      EXPECT_THAT(words_of({commit, changes.end()}, process), IsEmpty());
      EXPECT_EQ(std::ranges::count(of_before, "open a file"), 2);
    }
  }
}

// Checks the files, and the messages of all processes, for a save with one injected failure.
void expect_failure(const Worlds& worlds, int failing, std::size_t k, const std::string& word,
                    bool committed) {
  SCOPED_TRACE(concat("change ", k, " of process ", failing, ": ", word));
  const TemporaryDirectory run;
  save_state(run.path(), kWorld, 1, 1);
  std::vector<std::vector<SaveResult>> results(worlds.size());
  const How how = k % 2 == 0 ? How::kWait : How::kBackground;
  std::string who;
  RankRange ranks;
  const auto thrown = as_processes(worlds, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    std::atomic<std::size_t> count = 0;
    if (processes.process() == failing) {
      ranks = processes.ranks();
      who = processes.describe(failing);
      saver.on_change([&](std::string_view) {
        if (count++ == k) throw WriteError("planted failure");
      });
    }
    save_steps(processes, saver, how, {2});
    processes.barrier(Channel::kRun, "the state of the disk");
    if (processes.is_first()) {
      EXPECT_EQ(names_in(run.path() / "checkpoints").size(), committed ? 2U : 1U);
    }
    processes.barrier(Channel::kRun, "the next save");
    save_steps(processes, saver, how, {3});
    results[static_cast<std::size_t>(processes.process())] = saver.take_results();
  });
  EXPECT_THAT(thrown, Each(""));
  for (const std::vector<SaveResult>& result : results) {
    ASSERT_EQ(result.size(), 2U);
    EXPECT_EQ(result[0].failure,
              concat("checkpoint of step 2 not saved: ", who, ": planted failure"));
    EXPECT_TRUE(result[0].is_write_error);
    EXPECT_TRUE(ranks.contains(result[0].failed_rank)) << result[0].failed_rank;
    EXPECT_EQ(result[0].failed_rank, results[0][0].failed_rank);
    EXPECT_EQ(result[1].failure, "");
  }
  const std::size_t kept = committed ? 3 : 2;
  EXPECT_EQ(names_in(run.path() / "checkpoints").size(), kept);
  EXPECT_THAT(wrong_after_load(Checkpoint(run.path()), 2, 3), IsEmpty());
}

// In a run of changes of the same kind, only the first and the last are made to fail.
TEST(CheckpointProcesses, FailTogetherAtAnyChangeOfAnyOfThem) {
  const Worlds worlds = {1, 3};
  const std::vector<Change> changes = changes_of_a_save(worlds);
  for (const int process : {0, 1}) {
    const std::vector<std::string> words = words_of(changes, process);
    const auto renaming =
        static_cast<std::size_t>(std::ranges::find(words, "rename") - words.begin());
    for (std::size_t k = 0; k < words.size(); ++k)
      if (k == 0 || k + 1 == words.size() || words[k - 1] != words[k] || words[k + 1] != words[k])
        expect_failure(worlds, process, k, words[k], k > renaming);
  }
}

TEST(CheckpointProcesses, EndTheRanksOfAFailedSave) {
  const TemporaryDirectory run;
  std::array<std::string, kWorld> ends;
  as_processes({2, 2}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    if (!processes.is_first())
      saver.on_change([](std::string_view change) {
        if (change == "sync a file") throw Error("planted failure");
      });
    run_ranks(processes, [&](RankContext& rank) {
      RankState state(rank.rank, rank.world);
      std::string& end = ends[static_cast<std::size_t>(rank.rank)];
      try {
        saver.save(rank, info_of(1), state.entries());
      } catch (const PeerFailed& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("process 1"), HasSubstr("planted failure")));
        end = "by a peer";
      } catch (const Error& error) {
        EXPECT_EQ(dynamic_cast<const WriteError*>(&error), nullptr);
        end = "by itself";
      }
    });
  });
  EXPECT_EQ(ends[0], "by a peer");
  EXPECT_EQ(ends[1], "by a peer");
  EXPECT_THAT((std::vector{ends[2], ends[3]}), UnorderedElementsAre("by a peer", "by itself"));
}

// A process is lost between the two barriers of the save: the others return, and process 0 removes
// the files.
TEST(CheckpointProcesses, ReturnWhenOneIsLostInTheMiddle) {
  for (const How how : {How::kWait, How::kBackground})
    for (const int lost : {0, 1, 2}) {
      const TemporaryDirectory run;
      save_state(run.path(), kWorld, 1, 1);
      std::vector<std::string> failures(3);
      as_processes({2, 1, 1}, [&](ProcessGroup& processes) {
        CheckpointSaver saver(run.path(), kWorld, {}, &processes);
        if (processes.process() == lost)
          saver.on_change([&](std::string_view change) {
            if (change == "write a range") processes.fail("planted loss", 3);
          });
        save_steps(processes, saver, how, {2});
        failures[static_cast<std::size_t>(processes.process())] =
            saver.take_results().at(0).failure;
        throw Error("as the world has failed");  // so that no process leaves the group normally
      });
      EXPECT_THAT(failures,
                  Each(AllOf(HasSubstr("step 2 not saved: "), HasSubstr("planted loss"))));
      EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000001"));
    }
}

// A rank fails in one process while the others save: its end does not wait for their disks.
TEST(CheckpointProcesses, AFailingRankDoesNotWaitForTheDisksOfOthers) {
  const TemporaryDirectory run;
  std::atomic<bool> over = false;
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = as_processes({2, 2}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    if (processes.process() == 1)
      saver.on_change([&](std::string_view change) {
        if (change == "write a range") over.wait(false);
      });
    try {
      run_ranks(processes, [&](RankContext& rank) {
        RankState state(rank.rank, rank.world);
        CheckpointSaver::Staging staging(rank, state.entries());
        saver.start(rank, info_of(1), state.entries(), staging);
        if (rank.rank == 0) throw Error("a rank's failure");
        if (processes.process() == 1) saver.wait();
      });
    } catch (const Error&) {
      over = true;
      over.notify_all();
      throw;
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
  EXPECT_THAT(thrown[0], HasSubstr("a rank's failure"));
  EXPECT_THAT(names_in(run.path() / "checkpoints"), IsEmpty());
}

TEST(CheckpointProcesses, ReportACheckpointEvenIfOneIsLostAfterwards) {
  const TemporaryDirectory run;
  std::vector<std::string> failures(2);
  as_processes({2, 2}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    saver.on_change([&](std::string_view change) {
      if (change == "sync the run directory") processes.fail("planted loss", 3);
    });
    save_steps(processes, saver, How::kWait, {1});
    failures[static_cast<std::size_t>(processes.process())] = saver.take_results().at(0).failure;
    throw Error("as the world has failed");
  });
  EXPECT_EQ(failures[0], "");
  EXPECT_THAT(failures[1], HasSubstr("planted loss"));
  EXPECT_THAT(wrong_after_load(Checkpoint(run.path()), 1, 1), IsEmpty());
}

TEST(CheckpointProcesses, RefusePartsThatDoNotCoverATensorOnce) {
  const TemporaryDirectory run;
  std::vector<std::string> failures(2);
  const test::HostTensor values({3});
  as_processes({1, 1}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), 2, {}, &processes);
    run_ranks(processes, [&](RankContext& rank) {
      const std::vector<StateEntry> entries = {
          {.name = "w", .shape = {7}, .begin = rank.rank == 0 ? 0 : 4, .values = values}};
      saver.write(rank, info_of(1), entries);
    });
    failures[static_cast<std::size_t>(processes.process())] = saver.take_results().at(0).failure;
  });
  EXPECT_THAT(failures, Each(HasSubstr("w: elements from 3 to 4 have no writer, or two")));
  EXPECT_THAT(names_in(run.path() / "checkpoints"), IsEmpty());
}

TEST(CheckpointProcesses, OnlyTheFirstCommitsAndPrunes) {
  const TemporaryDirectory run;
  std::atomic<int> hooks = 0;
  as_processes({2, 2}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {.last = 1}, &processes);
    saver.before_commit([&] {
      EXPECT_TRUE(processes.is_first());
      ++hooks;
      return "a note";
    });
    save_steps(processes, saver, How::kBackground, {1, 2, 3});
    EXPECT_THAT(saver.take_results().at(2).notes, ElementsAre("a note"));
  });
  EXPECT_EQ(hooks, 3);
  EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000003"));
}

// The wait is longer than the timeout of this process's watchdog.
TEST(CheckpointProcesses, WaitForASlowDiskOfAnother) {
  const TemporaryDirectory run;
  const WatchOptions watch{.stuck_after = std::chrono::milliseconds(600)};
  const auto thrown = as_processes({2, 2}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    if (processes.process() == 1)
      saver.on_change(
          [](std::string_view) { std::this_thread::sleep_for(std::chrono::milliseconds(150)); });
    run_ranks(
        processes,
        [&](RankContext& rank) {
          RankState state(rank.rank, rank.world);
          CheckpointSaver::Staging staging(rank, state.entries());
          state.fill(1);
          saver.start(rank, info_of(1), state.entries(), staging);
          saver.wait();
        },
        watch);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_THAT(wrong_after_load(Checkpoint(run.path()), 2, 1), IsEmpty());
}

TEST(CheckpointProcesses, NameHostAndPathIfTheFilesAreNotVisible) {
  CheckpointFiles files("run", HiddenName::kHostAndPid);  // files that join() does not touch
  const std::string message =
      message_of<WriteError>([&] { files.join({.directory = "/of/another/host", .tensors = {}}); });
  EXPECT_THAT(message,
              AllOf(HasSubstr(host_name()), HasSubstr("/of/another/host/model.safetensors"),
                    HasSubstr("a file system that they share")));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(CheckpointProcesses, HiddenNamesHaveTheHostAndOthersAreKept) {
  const TemporaryDirectory run;
  const auto parent = run.path() / "checkpoints";
  const std::string mine = host_name();
  for (const std::string& owner :
       {std::string("1"), mine + "-1", mine + "-2", "not-" + mine + "-1"}) {
    std::filesystem::create_directories(parent / (".step_00000001.tmp-" + owner));
    std::filesystem::create_directories(parent / (".step_00000002.old-" + owner));
  }
  const FileLock living = FileLock::try_directory(parent / (".step_00000001.tmp-" + mine + "-2"));
  std::mutex mutex;
  std::set<std::string> seen;
  as_processes({2, 2}, [&](ProcessGroup& processes) {
    CheckpointSaver saver(run.path(), kWorld, {}, &processes);
    saver.on_change([&](std::string_view) {
      const std::lock_guard lock(mutex);
      for (std::string& name : names_in(parent))
        seen.insert(std::move(name));
    });
    save_steps(processes, saver, How::kWait, {5});
  });
  EXPECT_THAT(seen, Contains(concat(".step_00000005.tmp-", mine, "-", getpid())));
  EXPECT_THAT(names_in(parent),
              UnorderedElementsAre(".step_00000001.tmp-" + mine + "-2",
                                   ".step_00000001.tmp-not-" + mine + "-1",
                                   ".step_00000002.old-not-" + mine + "-1", "step_00000005"));
}

TEST(SaveMessages, RoundTrip) {
  const std::vector<SaveResult> results = {
      {.step = 1, .failure = {}, .bytes = 1LL << 40, .seconds = 0.1, .notes = {"a", "\"b\"\n"}},
      {.step = 2, .failure = "no \xff", .is_write_error = true, .failed_rank = 3, .notes = {}}};
  const std::vector<SaveResult> back = unpack_results(pack_results(results));
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].bytes, 1LL << 40);
  EXPECT_EQ(back[0].seconds, 0.1);
  EXPECT_EQ(back[0].notes, results[0].notes);
  EXPECT_EQ(back[0].failed_rank, -1);
  EXPECT_EQ(back[1].failure, "no \xef\xbf\xbd");
  EXPECT_TRUE(back[1].is_write_error);
  EXPECT_EQ(back[1].failed_rank, 3);

  SaveMessage message;
  message.plan = {.directory = "/a/\xff", .tensors = {{{test::kStateTensors, {}}}}};
  message.sums = {{{~std::uint64_t{0}, 1}, {2}}};
  const SaveMessage same = unpack_message(pack_message(message));
  EXPECT_EQ(same.plan.directory, message.plan.directory);
  EXPECT_EQ(same.sums, message.sums);
  ASSERT_EQ(same.plan.tensors[0].size(), test::kStateTensors.size());
  for (std::size_t i = 0; i < test::kStateTensors.size(); ++i) {
    EXPECT_EQ(same.plan.tensors[0][i].name, test::kStateTensors[i].name);
    EXPECT_EQ(same.plan.tensors[0][i].dtype, test::kStateTensors[i].dtype);
    EXPECT_EQ(same.plan.tensors[0][i].shape, test::kStateTensors[i].shape);
  }
}

}  // namespace
}  // namespace muo::trainer
