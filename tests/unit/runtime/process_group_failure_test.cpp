#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "runtime/comm/frame_connection.h"
#include "runtime/comm/group_frame.h"
#include "runtime/comm/process_group.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "unit/runtime/process_world.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
using test::ChildProcess;
using test::eventually;
using test::free_port;
using test::message_of;
using test::options_of;
using test::options_of_all;
using test::outcome_of;
using test::run_groups;
using test::run_world;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr Channel kRun = Channel::kRun, kSaves = Channel::kSaves;

TEST(ProcessGroupFailure, ReachesAllWithItsCauseAndItsExitCode) {
  for (const int failing : {0, 2})
    for (const int code : {2, 3}) {
      std::atomic<int> told = 0;
      const auto outcomes = run_world(3, [&](ProcessGroup& group) {
        group.on_failure([&](const std::string& cause, int exit_code) {
          EXPECT_EQ(cause, "step 7: \"loss\" is\nnot finite");
          EXPECT_EQ(exit_code, code);
          ++told;
        });
        if (group.process() == failing) group.fail("step 7: \"loss\" is\nnot finite", code);
        const std::string outcome = outcome_of([&] { group.barrier(kRun, "a meeting"); });
        while (told < 2)
          std::this_thread::yield();
        throw Error(outcome);
      });
      EXPECT_THAT(outcomes, Each(concat("Error: ", code == 2 ? "InputError" : "PeerFailed",
                                        ": step 7: \"loss\" is\nnot finite")));
      EXPECT_EQ(told, 2);
    }
}

TEST(ProcessGroupFailure, TheFirstOneOfTheWorldCounts) {
  const auto outcomes = run_world(3, [&](ProcessGroup& group) {
    if (group.process() == 1) {
      group.fail("the first", 3);
    } else {
      std::latch heard(1);
      group.on_failure([&](const std::string&, int) { heard.count_down(); });
      heard.wait();
      group.on_failure({});
      group.fail("the second", 2);
    }
    group.barrier(kRun, "a meeting");
  });
  EXPECT_THAT(outcomes, Each("PeerFailed: the first"));
}

// Only the first failure that reaches process 0 counts: the two other processes receive it.
TEST(ProcessGroupFailure, OfTwoAtOnceAllEndWithTheSame) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    std::atomic<int> received = 0;
    const auto outcomes = run_world(3, [&](ProcessGroup& group) {
      group.on_failure([&](const std::string&, int) { ++received; });
      group.fail(concat("failure of ", group.process()), 3);
      EXPECT_TRUE(eventually([&] { return received >= 2; }));
      group.barrier(kRun, "a meeting");
    });
    EXPECT_THAT(outcomes, Each(outcomes[0]));
    EXPECT_THAT(outcomes[0], StartsWith("PeerFailed: failure of "));
  }
}

TEST(ProcessGroupFailure, IsToldAtOnceToWhoAsksLaterAndNotToWhoDoesNotAnyMore) {
  std::atomic<int> told = 0, not_to_tell = 0;
  const auto outcomes = run_world(2, [&](ProcessGroup& group) {
    group.on_failure([&](const std::string&, int) { ++not_to_tell; });
    group.on_failure({});
    group.barrier(kRun, "nobody is to be told");
    if (group.is_first()) group.fail("a cause", 3);
    EXPECT_THAT(outcome_of([&] { group.barrier(kRun, "a meeting"); }), "PeerFailed: a cause");
    group.on_failure([&](const std::string& cause, int) {
      EXPECT_EQ(cause, "a cause");
      ++told;
    });
    EXPECT_EQ(told, group.is_first() ? told.load() : 1);
    throw Error("the end");
  });
  EXPECT_THAT(outcomes, Each("Error: the end"));
  EXPECT_EQ(told, 1);
  EXPECT_EQ(not_to_tell, 0);
}

TEST(ProcessGroupFailure, WhoIsToldMayTakeItsTime) {
  const int port = free_port();
  std::vector<ProcessGroupOptions> options = options_of_all(3, port);
  for (ProcessGroupOptions& option : options)
    option.heartbeat_timeout = milliseconds(400);
  const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
    group.on_failure([&](const std::string&, int) {
      if (group.is_first()) std::this_thread::sleep_for(milliseconds(600));
    });
    if (group.process() == 1) group.fail("a cause", 3);
    EXPECT_THAT(outcome_of([&] { group.barrier(kRun, "a meeting"); }), "PeerFailed: a cause");
    group.on_failure({});
    group.barrier(kRun, "a meeting");
  });
  EXPECT_THAT(outcomes, Each("PeerFailed: a cause"));
}

TEST(ProcessGroupFailure, AProcessThatGoesWithoutLeavingIsNamed) {
  for (const int gone : {0, 1}) {
    const auto outcomes = run_world(3, [&](ProcessGroup& group) {
      group.barrier(kRun, "a meeting");
      if (group.process() == gone) return;
      group.barrier(kRun, "another");
    });
    for (std::size_t process = 0; process < outcomes.size(); ++process)
      EXPECT_THAT(
          outcomes[process],
          static_cast<int>(process) == gone
              ? testing::Matcher<std::string>(IsEmpty())
              : AllOf(StartsWith(concat("PeerFailed: process ", gone, " (rank ", gone, ", on ")),
                      HasSubstr(concat(", pid ", getpid(), ") has ended"))));
  }
}

TEST(ProcessGroupFailure, ACauseIsSentBeforeItsProcessEndsEvenBehindALargeMessage) {
  for (const int failing : {0, 1}) {
    std::string large(std::size_t{8} << 20, 'x');
    const auto outcomes = run_world(2, [&](ProcessGroup& group) {
      if (failing == 0) {
        static_cast<void>(group.broadcast(kRun, "a value", [&] { return large; }));
      } else {
        static_cast<void>(group.gather(kRun, "values", large));
      }
      if (group.process() == failing) return group.fail("a cause", 3);
      group.barrier(kRun, "another");
    });
    EXPECT_EQ(outcomes[static_cast<std::size_t>(failing)], "");
    EXPECT_EQ(outcomes[static_cast<std::size_t>(1 - failing)], "PeerFailed: a cause");
  }
}

// The failure message and the end of the process arrive together.
TEST(ProcessGroupFailure, ACauseCountsAlsoIfItsProcessHasEndedBeforeItIsRead) {
  for (const int failing : {0, 1}) {
    const int port = free_port();
    std::array<int, 2> met = {}, go = {};
    ASSERT_EQ(::pipe(met.data()), 0);
    ASSERT_EQ(::pipe(go.data()), 0);
    char byte = 0;
    ChildProcess fails([&] {
      ProcessGroup group(options_of(failing, 2, port));
      group.barrier(kRun, "a meeting");
      MUO_CHECK(::write(met[1], &byte, 1) == 1 && ::read(go[0], &byte, 1) == 1);
      group.fail("a cause", 3);
      ::_exit(0);
    });
    ChildProcess other([&] {
      ProcessGroup group(options_of(1 - failing, 2, port));
      group.barrier(kRun, "a meeting");
      MUO_CHECK(message_of<PeerFailed>([&] { group.barrier(kRun, "another"); }) == "a cause");
    });
    EXPECT_EQ(::read(met[0], &byte, 1), 1);
    other.stop();
    EXPECT_EQ(::write(go[1], &byte, 1), 1);
    EXPECT_EQ(fails.wait(), 0);
    other.go_on();
    EXPECT_EQ(other.wait(), 0) << failing;
    for (const int pipe_end : {met[0], met[1], go[0], go[1]})
      ::close(pipe_end);
  }
}

TEST(ProcessGroupFailure, AProcessThatIsKilledIsNamed) {
  for (const int killed : {0, 1}) {
    const int port = free_port();
    ChildProcess child([&] {
      ProcessGroup group(options_of(killed, 2, port));
      group.barrier(kRun, "a meeting");
      group.barrier(kRun, "one that the other does not come to");
    });
    ProcessGroup group(options_of(1 - killed, 2, port));
    group.barrier(kRun, "a meeting");
    const pid_t pid = child.pid();
    child.end_by(SIGKILL);
    EXPECT_THAT(outcome_of([&] { group.barrier(kSaves, "another"); }),
                AllOf(StartsWith(concat("PeerFailed: process ", killed, " (rank ", killed)),
                      HasSubstr(concat("pid ", pid, ") has ended"))));
  }
}

TEST(ProcessGroupFailure, AProcessThatIsSilentIsNamed) {
  const int port = free_port();
  ChildProcess child([&] {
    ProcessGroup group(options_of(1, 3, port));
    group.barrier(kRun, "a meeting");
    group.barrier(kRun, "one that the others do not come to");
  });
  std::vector<ProcessGroupOptions> options = {options_of(0, 3, port), options_of(2, 3, port)};
  options[0].heartbeat_timeout = milliseconds(500);
  const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
    group.barrier(kRun, "a meeting");
    if (group.is_first()) child.stop();
    group.barrier(kSaves, "another");
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("PeerFailed: no heartbeat from process 1 (rank 1"),
                                   HasSubstr(concat("pid ", child.pid(), ") for 0.5 s")))));
}

TEST(ProcessGroupFailure, TimeInWhichTheProcessesAreStoppedIsNoSilence) {
  const int port = free_port();
  auto& meetings = test::shared_with_children<std::atomic<int>>();
  auto& over = test::shared_with_children<std::atomic<bool>>();
  const auto run = [&](int process) {
    return [&, process] {
      ProcessGroupOptions options = options_of(process, 2, port);
      options.heartbeat_timeout = milliseconds(400);
      ProcessGroup group(options);
      const auto make = [&] { return ++meetings, over ? "yes" : "no"; };
      while (group.broadcast(kRun, "whether it is over", make) == "no") {
      }
      group.leave();
    };
  };
  ChildProcess first(run(0)), second(run(1));
  EXPECT_TRUE(eventually([&] { return meetings > 0; }));
  first.stop();
  // The second one reads everything that the first has sent.
  std::this_thread::sleep_for(milliseconds(60));
  second.stop();
  std::this_thread::sleep_for(milliseconds(600));
  second.go_on();
  std::this_thread::sleep_for(milliseconds(60));
  first.go_on();
  over = true;
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST(ProcessGroupFailure, AStoppedProcessThatIsSentMuchKeepsTheOthersFromNothing) {
  const int port = free_port();
  std::string large(std::size_t{8} << 20, 'x');
  ChildProcess child([&] {
    ProcessGroup group(options_of(1, 3, port));
    const std::string value = group.broadcast(kRun, "a value", [] { return ""; });
    MUO_CHECK(value == large);
    group.leave();
  });
  const auto outcomes =
      run_groups({options_of(0, 3, port), options_of(2, 3, port)}, [&](ProcessGroup& group) {
        EXPECT_TRUE(group.broadcast(kRun, "a value", [&] {
          child.stop();
          return large;
        }) == large);
        if (!group.is_first()) child.go_on();
        group.leave();
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_EQ(child.wait(), 0);
}

TEST(ProcessGroupFailure, WhoSendsWithoutEndIsRefused) {
  const std::string part(100, 'x');
  const auto outcomes = run_world(2, [&](ProcessGroup& group) {
    if (group.is_first()) {
      for (;;)
        group.barrier(kSaves, "another meeting");
    } else {
      for (;;)
        static_cast<void>(group.gather(kRun, "values", part));
    }
  });
  EXPECT_THAT(outcomes, ElementsAre(AllOf(StartsWith("PeerFailed: process 1 (rank 1, on "),
                                          HasSubstr(": protocol violation")),
                                    StartsWith("PeerFailed: process 0 (rank 0, on ")));
}

}  // namespace
}  // namespace muo
