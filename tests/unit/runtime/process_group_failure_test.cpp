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
using std::chrono::seconds;
using test::ChildProcess;
using test::connect_to_port;
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
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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
        const std::string outcome = outcome_of([&] { group.meet(kRun, "a meeting"); });
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
    group.meet(kRun, "a meeting");
  });
  EXPECT_THAT(outcomes, Each("PeerFailed: the first"));
}

// Only the first to reach process 0 counts: the two processes that it is not of receive it.
TEST(ProcessGroupFailure, OfTwoAtOnceAllEndWithTheSame) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    std::atomic<int> received = 0;
    const auto outcomes = run_world(3, [&](ProcessGroup& group) {
      group.on_failure([&](const std::string&, int) { ++received; });
      group.fail(concat("failure of ", group.process()), 3);
      EXPECT_TRUE(eventually([&] { return received >= 2; }));
      group.meet(kRun, "a meeting");
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
    group.meet(kRun, "nobody is to be told");
    if (group.is_first()) group.fail("a cause", 3);
    EXPECT_THAT(outcome_of([&] { group.meet(kRun, "a meeting"); }), "PeerFailed: a cause");
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
    option.silence = milliseconds(400);
  const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
    group.on_failure([&](const std::string&, int) {
      if (group.is_first()) std::this_thread::sleep_for(milliseconds(600));
    });
    if (group.process() == 1) group.fail("a cause", 3);
    EXPECT_THAT(outcome_of([&] { group.meet(kRun, "a meeting"); }), "PeerFailed: a cause");
    group.on_failure({});
    group.meet(kRun, "a meeting");
  });
  EXPECT_THAT(outcomes, Each("PeerFailed: a cause"));
}

TEST(ProcessGroupFailure, AProcessThatGoesWithoutLeavingIsNamed) {
  for (const int gone : {0, 1}) {
    const auto outcomes = run_world(3, [&](ProcessGroup& group) {
      group.meet(kRun, "a meeting");
      if (group.process() == gone) return;
      group.meet(kRun, "another");
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
        static_cast<void>(group.from_first(kRun, "a value", [&] { return large; }));
      } else {
        static_cast<void>(group.to_first(kRun, "values", large));
      }
      if (group.process() == failing) return group.fail("a cause", 3);
      group.meet(kRun, "another");
    });
    EXPECT_EQ(outcomes[static_cast<std::size_t>(failing)], "");
    EXPECT_EQ(outcomes[static_cast<std::size_t>(1 - failing)], "PeerFailed: a cause");
  }
}

// All at once: what a process says, and that it has ended.
TEST(ProcessGroupFailure, ACauseCountsAlsoIfItsProcessHasEndedBeforeItIsRead) {
  for (const int failing : {0, 1}) {
    const int port = free_port();
    std::array<int, 2> met = {}, go = {};
    ASSERT_EQ(::pipe(met.data()), 0);
    ASSERT_EQ(::pipe(go.data()), 0);
    char byte = 0;
    ChildProcess fails([&] {
      ProcessGroup group(options_of(failing, 2, port));
      group.meet(kRun, "a meeting");
      MUO_CHECK(::write(met[1], &byte, 1) == 1 && ::read(go[0], &byte, 1) == 1);
      group.fail("a cause", 3);
      ::_exit(0);
    });
    ChildProcess other([&] {
      ProcessGroup group(options_of(1 - failing, 2, port));
      group.meet(kRun, "a meeting");
      MUO_CHECK(message_of<PeerFailed>([&] { group.meet(kRun, "another"); }) == "a cause");
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
      group.meet(kRun, "a meeting");
      group.meet(kRun, "one that the other does not come to");
    });
    ProcessGroup group(options_of(1 - killed, 2, port));
    group.meet(kRun, "a meeting");
    const pid_t pid = child.pid();
    child.end_by(SIGKILL);
    EXPECT_THAT(outcome_of([&] { group.meet(kSaves, "another"); }),
                AllOf(StartsWith(concat("PeerFailed: process ", killed, " (rank ", killed)),
                      HasSubstr(concat("pid ", pid, ") has ended"))));
  }
}

TEST(ProcessGroupFailure, AProcessThatIsSilentIsNamed) {
  const int port = free_port();
  ChildProcess child([&] {
    ProcessGroup group(options_of(1, 3, port));
    group.meet(kRun, "a meeting");
    group.meet(kRun, "one that the others do not come to");
  });
  std::vector<ProcessGroupOptions> options = {options_of(0, 3, port), options_of(2, 3, port)};
  options[0].silence = milliseconds(500);
  const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
    group.meet(kRun, "a meeting");
    if (group.is_first()) child.stop();
    group.meet(kSaves, "another");
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("PeerFailed: no sign of life from process 1 (rank 1"),
                                   HasSubstr(concat("pid ", child.pid(), ") for 0.5 s")))));
}

TEST(ProcessGroupFailure, TimeInWhichTheProcessesAreStoppedIsNoSilence) {
  const int port = free_port();
  auto& meetings = test::shared_with_children<std::atomic<int>>();
  auto& over = test::shared_with_children<std::atomic<bool>>();
  const auto run = [&](int process) {
    return [&, process] {
      ProcessGroupOptions options = options_of(process, 2, port);
      options.silence = milliseconds(400);
      ProcessGroup group(options);
      const auto make = [&] { return ++meetings, over ? "yes" : "no"; };
      while (group.from_first(kRun, "whether it is over", make) == "no") {
      }
      group.leave();
    };
  };
  ChildProcess first(run(0)), second(run(1));
  EXPECT_TRUE(eventually([&] { return meetings > 0; }));
  first.stop();
  std::this_thread::sleep_for(milliseconds(60));  // the second reads all that the first has sent
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
    const std::string value = group.from_first(kRun, "a value", [] { return ""; });
    MUO_CHECK(value == large);
    group.leave();
  });
  const auto outcomes =
      run_groups({options_of(0, 3, port), options_of(2, 3, port)}, [&](ProcessGroup& group) {
        EXPECT_TRUE(group.from_first(kRun, "a value", [&] {
          child.stop();
          return large;
        }) == large);
        if (!group.is_first()) child.go_on();
        group.leave();
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_EQ(child.wait(), 0);
}

std::vector<GroupFrame> frames_until_the_end(FrameConnection& connection) {
  std::vector<GroupFrame> frames;
  while (connection.receive(frames) == FrameConnection::State::kOpen) {
    pollfd socket = {.fd = connection.number(), .events = POLLIN, .revents = 0};
    MUO_CHECK(::poll(&socket, 1, 20'000) == 1, "nothing for 20 s, and no end");
  }
  return frames;
}

// What process 0 answers to a hello, until it ends the connection.
std::vector<GroupFrame> answers_to(int port, const std::string& payload) {
  FrameConnection connection(connect_to_port(port));
  connection.send({.type = GroupFrame::Type::kHello, .payload = payload});
  return frames_until_the_end(connection);
}

TEST(ProcessGroupStrangers, AreTurnedAwayAndKeepNobodyWaiting) {
  const int port = free_port();
  std::vector<FileDescriptor> silent;
  const auto strangers = [&] {
    while (!silent.emplace_back(connect_to_port(port)))
      silent.pop_back();
    for (int i = 0; i < 80; ++i)
      silent.push_back(connect_to_port(port));
    const FileDescriptor other = connect_to_port(port);
    constexpr std::string_view kGarbage = "GET / HTTP/1.1\r\nHost: node-a\r\n\r\n";
    EXPECT_GT(::send(other.number(), kGarbage.data(), kGarbage.size(), MSG_NOSIGNAL), 0);
    GroupHello hello{.token = "a tokem", .process = 1, .processes = 3};
    EXPECT_THAT(answers_to(port, encode(hello)), IsEmpty());
    hello.token = "a token and more";
    EXPECT_THAT(answers_to(port, encode(hello)), IsEmpty());
    hello.token = "";
    EXPECT_THAT(answers_to(port, encode(hello)), IsEmpty());
    EXPECT_THAT(answers_to(port, "a payload of another program"), IsEmpty());
  };
  const auto outcomes =
      run_groups({options_of(0, 3, port), options_of(1, 3, port), options_of(2, 3, port)},
                 [&](ProcessGroup& group) {
                   group.meet(kRun, "a meeting");
                   if (group.process() == 1) strangers();
                   group.meet(kRun, "another");
                   group.leave();
                 });
  EXPECT_THAT(outcomes, Each(IsEmpty()));

  // Also while the group comes together.
  ProcessGroupOptions first = options_of(0, 2, port);
  std::string outcome;
  std::jthread waits([&] {
    outcome = outcome_of([&] {
      ProcessGroup group(first);
      group.leave();
    });
  });
  strangers();
  EXPECT_EQ(outcome_of([&] { ProcessGroup(options_of(1, 2, port)).leave(); }), "");
  waits.join();
  EXPECT_EQ(outcome, "");
}

TEST(ProcessGroupStrangers, ThatSayNothingAreNotKept) {
  const int port = free_port();
  ProcessGroupOptions first = options_of(0, 2, port);
  first.silence = milliseconds(300);
  const auto outcomes = run_groups({first, options_of(1, 2, port)}, [&](ProcessGroup& group) {
    if (!group.is_first()) {
      FrameConnection connection(connect_to_port(port));
      const auto start = std::chrono::steady_clock::now();
      EXPECT_THAT(frames_until_the_end(connection), IsEmpty());
      EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(250));
    }
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroupStart, WhoHasNotComeIsNamed) {
  const int port = free_port();
  std::vector<ProcessGroupOptions> options = {options_of(0, 4, port), options_of(1, 4, port)};
  options[0].patience = milliseconds(300);
  const auto outcomes = run_groups(options, [](ProcessGroup&) { FAIL(); });
  EXPECT_THAT(outcomes,
              Each(StartsWith(concat("Error: after 0.3 s processes 2 and 3 of 4 have not come to "
                                     "127.0.0.1:",
                                     port, ", which no other host reaches: are they"))));

  ProcessGroupOptions without_first = options_of(1, 2, port);
  without_first.patience = milliseconds(200);
  EXPECT_THAT(outcome_of([&] { ProcessGroup group(without_first); }),
              StartsWith(concat("Error: after 0.2 s no answer from process 0 at 127.0.0.1:", port,
                                ": Connection refused")));
}

TEST(ProcessGroupStart, OtherTokensAreReportedOnBothSides) {
  const int port = free_port();
  std::vector<ProcessGroupOptions> options = {options_of(0, 2, port), options_of(1, 2, port)};
  options[0].patience = milliseconds(600);
  options[1].patience = milliseconds(200);
  options[1].token = "another token";
  const auto outcomes = run_groups(options, [](ProcessGroup&) { FAIL(); });
  EXPECT_THAT(outcomes[0], AllOf(HasSubstr("process 1 of 2 has not come"),
                                 HasSubstr("that came without the run's token")));
  EXPECT_THAT(outcomes[1], HasSubstr("turns this process away"));
}

TEST(ProcessGroupStart, WhoDoesNotBelongIsToldWhyAndTheOthersGoOn) {
  const int port = free_port();
  std::vector<std::string> refused;
  const auto outcomes = run_groups(options_of_all(3, port), [&](ProcessGroup& group) {
    if (group.process() == 2)
      for (const auto& other : std::vector<std::pair<int, int>>{{1, 3}, {2, 4}, {1, 2}, {3, 4}})
        refused.push_back(outcome_of(
            [&] { ProcessGroup stranger(options_of(other.first, other.second, port)); }));
    group.meet(kRun, "a meeting");
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  const std::string was_started = concat(", pid ", getpid(), ") was started as one of ");
  EXPECT_THAT(refused,
              ElementsAre(AllOf(StartsWith("InputError: process 1 (on "),
                                HasSubstr(") is there already, as process 1 (rank 1, on ")),
                          AllOf(StartsWith("InputError: process 2 (on "),
                                HasSubstr(was_started + "4, and process 0 as one of 3: ")),
                          HasSubstr(was_started + "2, and"), HasSubstr(was_started + "4, and")));
}

TEST(ProcessGroupStart, AnotherVersionIsRefusedWithoutReadingOn) {
  const int port = free_port();
  const auto outcomes =
      run_groups({options_of(0, 2, port), options_of(1, 2, port)}, [&](ProcessGroup& group) {
        if (group.is_first()) {
          std::string payload = encode(GroupHello{.token = "a token"}).substr(0, 4 + 4 + 4 + 7);
          payload[4] = static_cast<char>(99);
          const std::vector<GroupFrame> frames = answers_to(port, payload);
          ASSERT_EQ(frames.size(), 1U);
          EXPECT_EQ(frames[0].type, GroupFrame::Type::kRefusal);
          EXPECT_THAT(frames[0].payload, HasSubstr("another version"));
        }
        group.meet(kRun, "a meeting");
        group.leave();
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroupStart, AProcessThatEndsBeforeAllHaveComeIsNamed) {
  const int port = free_port();
  std::string outcome;
  std::jthread first(
      [&] { outcome = outcome_of([&] { ProcessGroup group(options_of(0, 3, port)); }); });
  std::vector<GroupFrame> frames;
  while (frames.empty()) {
    FileDescriptor socket = connect_to_port(port);
    if (!socket) continue;
    FrameConnection connection(std::move(socket));
    const GroupMember member = {.host = "node-b", .pid = 4711};
    connection.send({.type = GroupFrame::Type::kHello,
                     .payload = encode(GroupHello{
                         .token = "a token", .process = 2, .processes = 3, .member = member})});
    while (frames.empty())
      connection.receive(frames);
  }
  EXPECT_EQ(frames.front().type, GroupFrame::Type::kBeat);
  first.join();
  EXPECT_THAT(outcome, StartsWith("Error: process 2 (on node-b, pid 4711) has ended"));
}

TEST(ProcessGroupAddress, NothingButTheGivenOneIsListenedOn) {
  const int port = free_port();
  const auto outcomes =
      run_groups({options_of(0, 2, port), options_of(1, 2, port)}, [&](ProcessGroup& group) {
        EXPECT_TRUE(connect_to_port(port));
        EXPECT_FALSE(connect_to_port(port, "127.0.0.2"));
        EXPECT_FALSE(connect_to_port(port, "::1"));
        group.meet(kRun, "a meeting");
        group.leave();
      });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroupAddress, MayBeANameOrOneOfIPv6) {
  for (const std::string address : {"localhost", "::1"}) {
    const int port = free_port();
    std::vector<ProcessGroupOptions> options = {options_of(0, 2, port), options_of(1, 2, port)};
    for (ProcessGroupOptions& option : options)
      option.address = address;
    const auto outcomes = run_groups(options, [](ProcessGroup& group) { group.leave(); });
    EXPECT_THAT(outcomes, Each(IsEmpty())) << address;
  }
}

TEST(ProcessGroupAddress, ThatCannotBeListenedOnIsAnInputError) {
  const int port = free_port();
  const auto outcome = [&](const std::string& address) {
    ProcessGroupOptions options = options_of(0, 2, port);
    options.address = address;
    options.patience = milliseconds(100);
    return outcome_of([&] { ProcessGroup group(options); });
  };
  const auto with = [&](const std::string& text) {
    return AllOf(StartsWith("InputError: cannot listen on "), HasSubstr(text),
                 Not(HasSubstr("\n")));
  };
  EXPECT_THAT(outcome("a..b"), with("the name is not known here"));
  EXPECT_THAT(outcome("203.0.113.7"), with("not an address of this host"));
  EXPECT_THAT(outcome("0.0.0.0"), with("need one address"));
  EXPECT_THAT(outcome("::"), with(concat("[::]:", port, ": the other processes need one")));
  EXPECT_THAT(outcome(""), with("the name is not known here"));
  const ListeningSockets taken = listen_at("127.0.0.1", port);
  EXPECT_THAT(outcome("127.0.0.1"),
              with(concat("127.0.0.1:", port, ": another program does; give another port")));
}

}  // namespace
}  // namespace muo
