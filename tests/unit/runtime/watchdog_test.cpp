#include "runtime/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/check.h"
#include "runtime/device_group.h"
#include "support/errors.h"
#include "support/memory_exchange.h"
#include "support/processes.h"
#include "support/tensors.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using test::HostTensor;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using View = RankProgress::View;

constexpr milliseconds kTick(250);
constexpr Timeouts kGpu{.in_steps = seconds(20)};

// Lets `time` pass while `ranks` do not change. Returns the verdict, or none.
std::optional<Stuck> wait(StuckDetector& detector, const std::vector<View>& ranks,
                          milliseconds time) {
  for (milliseconds passed{0}; passed < time; passed += kTick)
    if (auto stuck = detector.after(kTick, ranks)) return stuck;
  return std::nullopt;
}

// In the step's first phase.
View at(std::int64_t step, Activity activity, std::uint64_t heartbeats,
        const char* phase = "the step") {
  return {.step = step,
          .phase = phase,
          .activity = activity,
          .heartbeats = heartbeats,
          .heartbeats_in_phase = heartbeats};
}

View later_phase(View rank) {
  ++rank.phases;
  return rank;
}

TEST(StuckDetector, BlamesTheRankThatWaitsForNobody) {
  const std::vector<std::pair<std::vector<View>, int>> cases = {
      {{at(7, Activity::kPeers, 9), at(7, Activity::kWork, 9), at(7, Activity::kDevice, 3)}, 1},
      {{at(7, Activity::kPeers, 1), at(7, Activity::kNone, 1), at(7, Activity::kDevice, 3)}, 2},
      {{at(7, Activity::kDevice, 5), at(7, Activity::kDevice, 4), at(7, Activity::kDevice, 5)}, 1},
      {{at(7, Activity::kDevice, 5), at(7, Activity::kDevice, 5), at(6, Activity::kDevice, 8)}, 2},
      {{later_phase(at(7, Activity::kDevice, 1)), at(7, Activity::kDevice, 200),
        later_phase(at(7, Activity::kDevice, 1))},
       1}};
  for (const auto& [ranks, culprit] : cases) {
    StuckDetector detector(3, kGpu);
    EXPECT_FALSE(wait(detector, ranks, seconds(20)));
    const auto stuck = wait(detector, ranks, seconds(1));
    ASSERT_TRUE(stuck);
    EXPECT_EQ(stuck->rank, culprit);
    EXPECT_EQ(stuck->step, ranks.at(static_cast<std::size_t>(culprit)).step);
    EXPECT_THAT(stuck->what, AllOf(HasSubstr("no heartbeat for 20"), HasSubstr("the step"),
                                   HasSubstr("--stuck-after")));
  }
}

TEST(StuckDetector, OneRanksSignOfLifeIsEnough) {
  StuckDetector detector(2, kGpu);
  std::vector<View> ranks = {at(3, Activity::kPeers, 1), at(3, Activity::kWork, 1, "sampling")};
  for (int token = 0; token < 20; ++token) {
    ++ranks[1].heartbeats;
    EXPECT_FALSE(wait(detector, ranks, seconds(15))) << token;
  }
}

TEST(StuckDetector, FilesAndTheStartMayTakeMinutesAndOthersMayWaitForThem) {
  for (const View& slow : {at(3, Activity::kFiles, 1), at(-1, Activity::kDevice, 1)}) {
    StuckDetector detector(2, kGpu);
    const std::vector<View> ranks = {at(3, Activity::kDevice, 1), slow};
    EXPECT_FALSE(wait(detector, ranks, minutes(10)));
    const auto stuck = wait(detector, ranks, seconds(1));
    ASSERT_TRUE(stuck);
    EXPECT_EQ(stuck->rank, 1);
  }
}

TEST(StuckDetector, LongStepsWidenTheLimit) {
  StuckDetector detector(1, kGpu);
  EXPECT_FALSE(wait(detector, {at(-1, Activity::kDevice, 1, "the warm-up")}, seconds(30)));
  EXPECT_FALSE(wait(detector, {at(0, Activity::kDevice, 2)}, seconds(115)));
  EXPECT_TRUE(wait(detector, {at(0, Activity::kDevice, 2)}, seconds(10)));
}

TEST(StuckDetector, WhatTheUserAsksForHoldsAlways) {
  const Timeouts asked{.requested = seconds(2), .in_steps = seconds(20)};
  for (const Activity activity : {Activity::kWork, Activity::kDevice, Activity::kFiles}) {
    StuckDetector detector(1, asked);
    EXPECT_FALSE(wait(detector, {at(-1, activity, 1)}, seconds(2)));
    EXPECT_TRUE(wait(detector, {at(-1, activity, 1)}, seconds(1)));
  }
  StuckDetector never(1, {.requested = seconds(0), .in_steps = seconds(20)});
  EXPECT_FALSE(wait(never, {at(1, Activity::kWork, 1)}, minutes(100)));
}

TEST(StuckDetector, RanksThatWaitForPeersAreStuckIfThoseOfOtherProcessesWaitAsLong) {
  milliseconds told{-1}, elsewhere{0};
  StuckDetector detector(2, {.requested = seconds(2)}, [&](milliseconds here) {
    told = here;
    return elsewhere;
  });
  const View waits = at(3, Activity::kPeers, 1), works = at(3, Activity::kWork, 1);
  EXPECT_FALSE(wait(detector, {waits, waits}, minutes(1)));
  EXPECT_EQ(told, minutes(1) - kTick);  // the first check counts as their heartbeat
  elsewhere = seconds(3);
  EXPECT_TRUE(wait(detector, {waits, waits}, kTick));
  elsewhere = seconds(0);
  EXPECT_TRUE(wait(detector, {waits, works}, kTick)) << "it waits for nobody";
  EXPECT_EQ(told, seconds(0));
}

// One process waits in a collective, the other in a group call, each seemingly for the other.
TEST(Watchdog, ProcessesThatWaitForEachOtherAreStuck) {
  test::MemoryExchange exchange(2);
  const std::vector<std::string> thrown = test::as_processes({1, 1}, [&](ProcessGroup& processes) {
    DeviceGroup group({.world = 2,
                       .processes = &processes,
                       .exchange = &exchange.end(processes.process()),
                       .watch = {.stuck_after = milliseconds(500)}});
    group.run([&](RankContext& rank) {
      const HostTensor t({4});
      if (rank.rank == 0) return processes.barrier(Channel::kRun, "a meeting");
      rank.communicator.all_reduce(rank.comm, 1, t, t);
    });
  });
  for (const std::string& what : thrown)
    EXPECT_THAT(what, AllOf(HasSubstr("no heartbeat for"), HasSubstr("waiting for other ranks")));
}

GroupOptions watched(int world, milliseconds stuck_after) {
  return {.world = world, .watch = {.stuck_after = stuck_after, .grace = seconds(5)}};
}

// A thread that does not return until the group has failed.
void hang_until_released() {
  for (;;) {
    RankProgress::current()->enter("a wait for nothing");  // finally throws PeerFailed
    std::this_thread::sleep_for(seconds(1));
  }
}

TEST(Watchdog, ARankThatIsStuckIsTheCauseAndTheOthersAreReleased) {
  constexpr int kStuck = 2;
  for (const bool in_collective : {false, true}) {
    const auto start = std::chrono::steady_clock::now();
    DeviceGroup group(watched(4, milliseconds(300)));
    std::atomic<int> released = 0;
    const std::string message = message_of<Error>([&] {
      group.run([&](RankContext& rank) {
        rank.progress.begin_step(17);
        if (rank.rank == kStuck) hang_until_released();
        const HostTensor values({8});
        try {
          if (in_collective)
            rank.communicator.all_reduce(rank.comm, 1, values, values);
          else
            rank.barrier.arrive();
        } catch (const PeerFailed&) {
          ++released;
          throw;
        }
      });
    });
    EXPECT_THAT(message, AllOf(StartsWith("rank 2, step 17: no heartbeat for 0.3"),
                               HasSubstr("while in a wait for nothing, in calls of its own")));
    EXPECT_EQ(released, 3);
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  }
}

TEST(Watchdog, AStuckTaskOfAReplayIsBlamedNotThoseThatWaitForIt) {
  DeviceGroup group(watched(3, milliseconds(300)));
  const std::string message = message_of<Error>([&] {
    group.run([](RankContext& rank) {
      const HostTensor values({8});
      const auto graph = rank.comm.capture([&] {
        rank.comm.enqueue_host("work", {}, [&] {
          if (rank.rank == 1) std::this_thread::sleep_for(milliseconds(700));
        });
        rank.communicator.all_reduce(rank.comm, 1, values, values);
      });
      rank.progress.begin_step(0);
      rank.comm.launch(*graph);
    });
  });
  EXPECT_THAT(message, AllOf(StartsWith("rank 1, step 0: "), HasSubstr("waiting for its device")));
}

TEST(Watchdog, ABusyRankLearnsOfAFailureWhereItTellsItsProgress) {
  DeviceGroup group({.world = 2});
  const std::string message = message_of<Error>([&] {
    group.run([](RankContext& rank) {
      if (rank.rank == 0) throw Error("first cause");
      for (;;)
        rank.progress.enter("work");
    });
  });
  EXPECT_EQ(message, "rank 0: first cause");
}

TEST(Watchdog, LongWaitsWithHeartbeatsAreNone) {
  DeviceGroup group(watched(2, milliseconds(400)));
  const auto waits = [](RankContext& rank) {
    for (int i = 0; rank.rank == 0 && i < 10; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
      rank.progress.enter("work");
    }
    rank.barrier.arrive();
  };
  EXPECT_NO_THROW(group.run(waits));
  std::this_thread::sleep_for(seconds(1));  // no rank runs
  EXPECT_NO_THROW(group.run([](RankContext&) {}));
}

[[noreturn]] void hang() {
  for (;;)
    std::this_thread::sleep_for(seconds(1));
}

class WatchdogDeathTest : public testing::Test {
 protected:
  WatchdogDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  static void run(WatchOptions watch, const std::function<void(RankContext&)>& body) {
    if (!watch.before_exit)
      watch.before_exit = [] { static_cast<void>(std::fputs("saved\n", stderr)); };
    watch.grace = milliseconds(300);
    DeviceGroup group({.world = 2, .watch = watch});
    try {
      group.run(body);
    } catch (...) {  // must not reach gtest
    }
  }
};

TEST_F(WatchdogDeathTest, AThreadThatNeverComesBackIsLeftBehind) {
  EXPECT_EXIT(run({.stuck_after = milliseconds(300)},
                  [](RankContext& rank) {
                    rank.progress.begin_step(3);
                    if (rank.rank == 1) hang();
                    rank.barrier.arrive();
                  }),
              testing::ExitedWithCode(3),
              "^muograph: error: rank 1, step 3: no heartbeat .*; rank 1 did not return, so "
              "the program exits without it\nsaved\n$");
}

TEST_F(WatchdogDeathTest, AThreadThatHangsAfterAFailureDoesNotHideIt) {
  EXPECT_EXIT(run({},
                  [](RankContext& rank) {
                    if (rank.rank == 0) throw Error("first cause");
                    hang();
                  }),
              testing::ExitedWithCode(3), "^muograph: error: rank 0: first cause; rank 1 did not");
}

TEST_F(WatchdogDeathTest, ALeaderThatHangsIsNoObstacle) {
  EXPECT_EXIT(run({.stuck_after = milliseconds(300)},
                  [](RankContext& rank) {
                    rank.progress.begin_step(5);
                    rank.progress.enter("the saving");
                    rank.barrier.arrive([] { hang(); });
                  }),
              testing::ExitedWithCode(3), "rank [01], step 5: no heartbeat .*the saving");
}

TEST_F(WatchdogDeathTest, SavingThatHangsIsLeftBehindToo) {
  EXPECT_EXIT(run({.before_exit = hang},
                  [](RankContext& rank) {
                    if (rank.rank == 0) throw Error("first cause");
                    hang();
                  }),
              testing::ExitedWithCode(3), "^muograph: error: rank 0: first cause; rank 1 did not");
}

}  // namespace
}  // namespace muo
