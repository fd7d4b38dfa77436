#include "runtime/comm/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/comm/frame_connection.h"
#include "runtime/comm/group_frame.h"
#include "runtime/comm/group_handshake.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/interruption.h"
#include "runtime/rank_progress.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "unit/runtime/process_world.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
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
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::StartsWith;

constexpr Channel kRun = Channel::kRun, kSaves = Channel::kSaves;

TEST(ProcessGroup, MeetingsGiveTheFirstsValueToAllAndAllValuesToTheFirstInTheirOrder) {
  for (const int processes : {1, 2, 3, 4}) {
    const auto outcomes = run_world(processes, [&](ProcessGroup& group) {
      for (int round = 0; round < 50; ++round) {
        const auto word = [&](int process) { return concat(round, " of ", process); };
        EXPECT_EQ(group.broadcast(kRun, "a value", [&] { return word(group.process()); }), word(0));
        std::vector<std::string> all;
        for (int process = 0; process < processes && group.is_first(); ++process)
          all.push_back(word(process));
        EXPECT_EQ(group.gather(kRun, "values", word(group.process())), all);
      }
      group.leave();
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  }
}

TEST(ProcessGroup, NobodyPassesAMeetingBeforeAllHaveCome) {
  std::atomic<int> come = 0, made = 0;
  const auto outcomes = run_world(3, [&](ProcessGroup& group) {
    for (int round = 1; round <= 100; ++round) {
      ++come;
      if (round % 2 == 0) {
        group.barrier(kRun, "a meeting");
      } else {
        const auto make = [&] { return concat(++made, come >= 3 * round ? " late" : " early"); };
        EXPECT_EQ(group.broadcast(kRun, "a value", make), concat((round + 1) / 2, " late"));
      }
      EXPECT_GE(come, 3 * round);
    }
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroup, RanksFollowTheProcessesWhateverTheOrderInWhichTheyCome) {
  const int port = free_port();
  const std::vector<int> ranks = {2, 1, 3, 1};
  std::vector<ProcessGroupOptions> options;
  for (const int process : {3, 2, 0, 1}) {
    options.push_back(options_of(process, 4, port));
    options.back().ranks = ranks.at(static_cast<std::size_t>(process));
  }
  const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
    EXPECT_EQ(group.processes(), 4);
    EXPECT_EQ(group.world(), 7);
    EXPECT_EQ(group.processes_here(), 4);
    EXPECT_EQ(group.ranks().count, ranks.at(static_cast<std::size_t>(group.process())));
    const std::vector<int> processes = {0, 0, 1, 2, 2, 2, 3};
    for (int rank = 0; rank < 7; ++rank)
      EXPECT_EQ(group.process_of(rank), processes.at(static_cast<std::size_t>(rank)));
    EXPECT_EQ(group.ranks_of(2).first, 3);
    EXPECT_EQ(group.ranks_of(2).end(), 6);
    EXPECT_THAT(group.describe(1), AllOf(StartsWith("process 1 (rank 2, on "),
                                         HasSubstr(concat(", pid ", getpid(), ")"))));
    EXPECT_THAT(group.describe(2), StartsWith("process 2 (ranks 3 to 5, on "));
    EXPECT_THAT(message_of<Error>([&] { static_cast<void>(group.process_of(7)); }),
                HasSubstr("rank 7 of 7"));
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroup, ChannelsDoNotWaitForEachOther) {
  std::latch runs_done(3);
  const auto outcomes = run_world(3, [&](ProcessGroup& group) {
    {
      const std::jthread saves([&] {
        if (group.is_first()) runs_done.wait();
        for (int round = 0; round < 50; ++round)
          EXPECT_EQ(group.broadcast(kSaves, "a name", [&] { return concat("save ", round); }),
                    concat("save ", round));
      });
      for (int round = 0; round < 50; ++round)
        EXPECT_EQ(group.broadcast(kRun, "a step", [&] { return concat("step ", round); }),
                  concat("step ", round));
      runs_done.count_down();
    }
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroup, ALargeMessageArrivesWhole) {
  std::string large(std::size_t{8} << 20, ' ');
  for (std::size_t i = 0; i < large.size(); ++i)
    large[i] = static_cast<char>(i * 2654435761U >> 13U);
  const auto outcomes = run_world(2, [&](ProcessGroup& group) {
    EXPECT_TRUE(group.broadcast(kRun, "a value", [&] { return large; }) == large);
    const std::string part = large.substr(0, std::size_t{1} << 20);
    for (const std::string& one : group.gather(kRun, "values", part))
      EXPECT_TRUE(one == part);
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));

  ProcessGroup alone({});
  EXPECT_THAT(
      message_of<Error>([&] {
        static_cast<void>(alone.gather(kRun, "values", std::string(std::size_t{64} << 20, ' ')));
      }),
      HasSubstr("gather(\"values\") of 67108864 bytes"));
}

// Takes several times heartbeat_timeout: one byte is sent per heartbeat of process 0.
TEST(ProcessGroup, AMessageThatComesSlowlyIsNoSilence) {
  ProcessGroupOptions options = options_of(0, 2, free_port());
  options.heartbeat = milliseconds(10);
  options.heartbeat_timeout = milliseconds(500);
  std::string outcome;
  std::jthread first([&] {
    outcome = outcome_of([&] {
      ProcessGroup group(options);
      EXPECT_THAT(group.gather(kRun, "values", "mine"), ElementsAre("mine", std::string(80, 'x')));
      group.leave();
    });
  });
  FileDescriptor socket;
  while (!socket)
    socket = connect_to_port(options.port);
  Handshake handshake(Handshake::Side::kJoining, test::kSecret);
  const auto send_text = [&](std::string_view text) {
    EXPECT_EQ(::send(socket.number(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  };
  const auto receive = [&](std::size_t most) {
    pollfd readable = {.fd = socket.number(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&readable, 1, 20'000), 1);
    std::string come(most, '\0');
    come.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, ::recv(socket.number(), come.data(), come.size(), 0))));
    return come;
  };
  send_text(handshake.greeting());
  while (handshake.state() == Handshake::State::kWaiting)
    send_text(handshake.receive(receive(Handshake::kProofBytes)));
  FrameSeal seal = handshake.outgoing();
  FrameReader reader(handshake.incoming());
  send_text(to_wire({.type = GroupFrame::Type::kHello,
                     .payload = encode(GroupHello{.process = 1, .processes = 2, .member = {}})},
                    seal));
  std::string wire = to_wire({.type = GroupFrame::Type::kCall,
                              .site = "gather(\"values\")",
                              .payload = std::string(80, 'x')},
                             seal);
  while (!wire.empty()) {
    reader.add(receive(4096));
    for (; !wire.empty() && reader.next(); wire.erase(0, 1))
      send_text(wire.substr(0, 1));
    ASSERT_FALSE(reader.failed());
  }
  send_text(to_wire({.type = GroupFrame::Type::kBye}, seal));
  ::shutdown(socket.number(), SHUT_WR);
  while (!receive(4096).empty()) {
  }
  first.join();
  EXPECT_EQ(outcome, "");
}

TEST(ProcessGroup, MeetingsThatAreNotTheSameEndWithBothSitesAndProcesses) {
  using test::Body;
  const auto value = [] { return std::string("value"); };
  const std::vector<std::pair<Body, Body>> pairs = {
      {[&](ProcessGroup& group) { group.barrier(kRun, "A"); },
       [&](ProcessGroup& group) { group.barrier(kRun, "B"); }},
      {[&](ProcessGroup& group) {
         static_cast<void>(group.gather(kRun, "A", "value"));
         group.barrier(kSaves, "other");
       },
       [&](ProcessGroup& group) { static_cast<void>(group.broadcast(kRun, "B", value)); }},
      {[&](ProcessGroup& group) { group.barrier(kSaves, "A"); },
       [&](ProcessGroup& group) {
         static_cast<void>(group.gather(kSaves, "B", "value"));
         group.barrier(kRun, "other");
       }},
      {[&](ProcessGroup& group) { group.barrier(kRun, "A"); },
       [&](ProcessGroup& group) { group.leave(); }},
      {[&](ProcessGroup& group) { group.leave(); },
       [&](ProcessGroup& group) { group.barrier(kRun, "B"); }},
  };
  const std::vector<std::string> there = {"is in barrier(\"B\")", "is in broadcast(\"B\")",
                                          "is in gather(\"B\")", "has left",
                                          "is in barrier(\"B\")"};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::atomic<int> told = 0;
    const auto outcomes = run_world(3, [&](ProcessGroup& group) {
      std::latch heard(1);
      group.on_failure([&](const std::string&, int code) {
        told += code;
        heard.count_down();
      });
      const auto& body = group.process() == 2 ? pairs[i].second : pairs[i].first;
      const std::string outcome = outcome_of([&] { body(group); });
      heard.wait();
      group.on_failure({});  // `heard` is still used by the thread that counted it down
      throw Error(outcome);
    });
    EXPECT_THAT(
        outcomes,
        Each(AllOf(
            StartsWith("Error: PeerFailed: processes call different collectives: process 0 (ran"),
            HasSubstr("process 2 (rank 2, on "), HasSubstr(there[i]))))
        << i;
    EXPECT_EQ(told, 9) << i;
  }
}

TEST(ProcessGroup, LeavesInAnyOrderAndThenNobodyIsMissed) {
  for (const int last : {0, 1, 2}) {
    std::atomic<int> leaving = 0;
    std::atomic<bool> told = false;
    std::array<RankProgress, 3> progress;
    const auto works = [](const RankProgress& rank) {
      return rank.view().activity == Activity::kWork;
    };
    const auto outcomes = run_world(3, [&](ProcessGroup& group) {
      const RankProgress::Thread thread(progress.at(static_cast<std::size_t>(group.process())), "");
      group.on_failure([&](const std::string&, int) { told = true; });
      group.barrier(kRun, "the end");
      if (group.process() == last) {
        EXPECT_TRUE(eventually(
            [&] { return leaving == 2 && std::ranges::count_if(progress, works) == 1; }));
      }
      ++leaving;
      group.leave();
      EXPECT_EQ(leaving, 3);
      group.leave();
      // Other processes may have ended by now.
      std::this_thread::sleep_for(milliseconds(20 * ((group.process() + last) % 3)));
      group.fail("too late", 3);
      EXPECT_THAT(outcome_of([&] { group.barrier(kRun, "after the end"); }),
                  HasSubstr("after leave()"));
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
    EXPECT_FALSE(told);
  }
}

TEST(ProcessGroup, WhoWaitsIsSeenToWaitForPeersAndComesBackWhenItsRankIsStopped) {
  RankProgress rank;
  const auto outcomes = run_world(2, [&](ProcessGroup& group) {
    const bool waits = !group.is_first();
    if (waits) {
      const RankProgress::Thread thread(rank, "a test");
      EXPECT_THAT(outcome_of([&] { group.barrier(kRun, "a meeting"); }),
                  "PeerFailed: a peer failed");
    } else {
      while (rank.view().activity != Activity::kPeers)
        std::this_thread::yield();
      rank.stop();
      while (rank.view().activity != Activity::kNone)
        std::this_thread::yield();
      group.barrier(kRun, "a meeting");
    }
    group.barrier(kSaves, "both are there still");
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// The next value in process 0.
milliseconds idle_time_after(ProcessGroup& group, milliseconds before) {
  milliseconds idle = before;
  while (idle == before) {
    std::this_thread::yield();
    idle = group.share_idle_time(milliseconds(0));
  }
  return idle;
}

// In each round the least grows by a heartbeat of the process that has it, and of no other.
TEST(ProcessGroup, IdleTimeIsTheLeastOfTheOtherProcesses) {
  for (const int least : {1, 2}) {
    std::vector<ProcessGroupOptions> options = options_of_all(3, free_port());
    for (ProcessGroupOptions& option : options)
      option.heartbeat = milliseconds(2);
    const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
      for (int round = 1; round <= 20; ++round) {
        group.barrier(kRun, "a round");
        if (group.is_first()) {
          EXPECT_EQ(idle_time_after(group, milliseconds(round - 1)), milliseconds(round));
        } else {
          const milliseconds idle(group.process() == least ? round : 1000 + round);
          EXPECT_EQ(group.share_idle_time(idle), milliseconds(0));
        }
      }
      group.barrier(kRun, "the end");  // processes that have left do not count
      group.leave();
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  }
}

// Process 0 measures timeouts in the same running time as its own heartbeats, so their number does
// not depend on the machine's load: a heartbeat follows after one to two periods.
TEST(ProcessGroup, ASilentPeerIsAFailureAfterTheTimeThatIsSet) {
  constexpr int kBeats = 10;
  ProcessGroupOptions first = options_of(0, 2, free_port());
  first.heartbeat = milliseconds(5);
  first.heartbeat_timeout = kBeats * first.heartbeat;
  std::vector<GroupFrame> frames;
  std::jthread silent([&] {
    const GroupHello hello{.process = 1, .processes = 2, .member = {.host = "node-b"}};
    EXPECT_EQ(outcome_of([&] {
                JoinedGroup joined =
                    join_group(first.address, first.port, hello, first.secret, first.join_timeout);
                frames = std::move(joined.frames);
                pollfd input = {.fd = joined.connection.number(), .events = POLLIN, .revents = 0};
                do
                  ::poll(&input, 1, -1);
                while (joined.connection.receive(frames) == FrameConnection::State::kOpen);
              }),
              "");
  });
  EXPECT_THAT(outcome_of([&] {
                ProcessGroup group(first);
                EXPECT_EQ(group.processes_here(), 1);
                group.barrier(kRun, "a meeting");
              }),
              StartsWith("PeerFailed: no heartbeat from process 1 (rank 1, on node-b"));
  silent.join();
  const auto beats = std::ranges::count(frames, GroupFrame::Type::kBeat, &GroupFrame::type);
  EXPECT_THAT(beats, AllOf(Ge(1 + kBeats / 2), Le(1 + kBeats + 2)));  // the first one accepts it
  EXPECT_EQ(ProcessGroupOptions().heartbeat_timeout, std::chrono::seconds(20));  // docs/cluster.md
}

// An interrupted call still counts as a call: what the other processes contribute to it is not
// taken for a contribution to the next one.
TEST(ProcessGroup, AMeetingThatIsInterruptedDoesNotPutProcessesOutOfStep) {
  RankProgress rank;
  const auto outcomes = run_world(2, [&](ProcessGroup& group) {
    const auto value = [&](const std::string& text) {
      return group.broadcast(kRun, "a value", [&] { return text; });
    };
    if (group.is_first()) {
      while (rank.view().activity != Activity::kPeers)
        std::this_thread::yield();
      rank.interrupt(true);
      while (rank.view().activity != Activity::kNone)
        std::this_thread::yield();
      EXPECT_EQ(value("the first"), "the first");
    } else {
      const RankProgress::Thread thread(rank, "a test");
      EXPECT_THROW(static_cast<void>(value("")), Interrupted);
    }
    EXPECT_EQ(value("the second"), "the second");
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(ProcessGroup, WhatTheFirstThrowsIsItsOwn) {
  const auto outcomes = run_world(2, [&](ProcessGroup& group) {
    try {
      static_cast<void>(
          group.broadcast(kRun, "a value", []() -> std::string { throw Error("no value"); }));
    } catch (const Error& e) {
      group.fail(e.what(), 3);
      throw;
    }
  });
  EXPECT_THAT(outcomes, ElementsAre("Error: no value", "PeerFailed: no value"));
}

TEST(ProcessGroup, WaitsForAPortThatAnEndingRunStillHas) {
  const int port = free_port();
  auto ending = std::make_unique<ListeningSockets>(listen_at("127.0.0.1", port));
  const std::jthread end([&] {
    std::this_thread::sleep_for(milliseconds(200));
    ending.reset();
  });
  EXPECT_EQ(listen_at("127.0.0.1", port, std::chrono::seconds(20)).sockets.size(), 1U);
}

}  // namespace
}  // namespace muo
