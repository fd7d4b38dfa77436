#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/frame_connection.h"
#include "runtime/comm/group_frame.h"
#include "runtime/comm/handshake.h"
#include "runtime/comm/process_group.h"
#include "unit/runtime/process_world.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
using test::connect_to_port;
using test::free_port;
using test::joining;
using test::options_of;
using test::options_of_all;
using test::outcome_of;
using test::run_groups;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr Channel kRun = Channel::kRun;

std::vector<GroupFrame> frames_until_the_end(FrameConnection& connection) {
  std::vector<GroupFrame> frames;
  while (connection.receive(frames) == FrameConnection::State::kOpen) {
    pollfd socket = {.fd = connection.number(), .events = POLLIN, .revents = 0};
    MUO_CHECK(::poll(&socket, 1, 20'000) == 1, "nothing for 20 s, and no end");
  }
  return frames;
}

// Process 0's answers to a hello, until it closes the connection.
std::vector<GroupFrame> answers_to(int port, const std::string& payload,
                                   const std::string& secret = test::kSecret) {
  FrameConnection connection = joining(connect_to_port(port), secret);
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
    const std::string hello = encode(GroupHello{.process = 1, .processes = 3});
    for (const char* secret : {"a secreu", "a secret and more", "a"})
      EXPECT_THAT(answers_to(port, hello, secret), IsEmpty());
  };
  const auto outcomes =
      run_groups({options_of(0, 3, port), options_of(1, 3, port), options_of(2, 3, port)},
                 [&](ProcessGroup& group) {
                   group.barrier(kRun, "a meeting");
                   if (group.process() == 1) strangers();
                   group.barrier(kRun, "another");
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
  first.heartbeat_timeout = milliseconds(300);
  const auto outcomes = run_groups({first, options_of(1, 2, port)}, [&](ProcessGroup& group) {
    if (!group.is_first()) {
      const FileDescriptor socket = connect_to_port(port);
      const auto start = std::chrono::steady_clock::now();
      char byte = 0;
      pollfd ended = {.fd = socket.number(), .events = POLLIN, .revents = 0};
      EXPECT_EQ(::poll(&ended, 1, 20'000), 1);
      EXPECT_EQ(::recv(socket.number(), &byte, 1, 0), 0);
      EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(250));
    }
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// A program that listens in place of process 0 receives 40 bytes of the handshake, and the proof.
TEST(ProcessGroupStrangers, WhoListenFirstHearNothingOfAProcess) {
  const int port = free_port();
  auto listening = std::make_unique<ListeningSockets>(listen_at("127.0.0.1", port));
  std::string outcome;
  std::jthread joins(
      [&] { outcome = outcome_of([&] { ProcessGroup(options_of(1, 2, port)).leave(); }); });
  const auto receive = [](const FileDescriptor& socket) {
    std::string come(4096, '\0');
    pollfd readable = {.fd = socket.number(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&readable, 1, 20'000), 1);
    come.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, ::recv(socket.number(), come.data(), come.size(), 0))));
    return come;
  };
  int error = 0;
  FileDescriptor joiner;
  while (!joiner)
    joiner = accept_from(listening->sockets.front(), error);
  EXPECT_EQ(receive(joiner).size(), Handshake::kNameBytes + Handshake::kNonceBytes);
  const std::string nonce(Handshake::kNonceBytes, 'n');
  EXPECT_EQ(::send(joiner.number(), nonce.data(), nonce.size(), MSG_NOSIGNAL), std::ssize(nonce));
  const std::string proof = receive(joiner);
  EXPECT_EQ(proof.size(), Handshake::kProofBytes);
  EXPECT_EQ(::send(joiner.number(), proof.data(), proof.size(), MSG_NOSIGNAL), std::ssize(proof));
  EXPECT_EQ(receive(joiner), "");  // it closes the connection
  listening.reset();
  joiner = FileDescriptor();
  EXPECT_EQ(outcome_of([&] { ProcessGroup(options_of(0, 2, port)).leave(); }), "");
  joins.join();
  EXPECT_EQ(outcome, "");
}

// A relay between process 1 and process 0, which repeats the last message that it relayed.
TEST(ProcessGroupStrangers, WhoRelayCanSayNothingOfTheirOwn) {
  const int port = free_port(), relay_port = free_port();
  const ListeningSockets listening = listen_at("127.0.0.1", relay_port);
  std::atomic<bool> repeats = false;
  const std::jthread relay([&](const std::stop_token& stop) {
    int error = 0;
    std::array<FileDescriptor, 2> ends;
    while (!ends[0])
      ends[0] = accept_from(listening.sockets.front(), error);
    while (!ends[1])
      ends[1] = connect_to_port(port);
    std::array<std::string, 2> last;
    while (!stop.stop_requested())
      for (const std::size_t from : {0U, 1U}) {
        std::string come(4096, '\0');
        const ssize_t count = ::recv(ends[from].number(), come.data(), come.size(), 0);
        if (count > 0) last[from] = come.substr(0, static_cast<std::size_t>(count));
        const bool again = from == 0 && !last[0].empty() && repeats.exchange(false);
        for (int times = (count > 0 ? 1 : 0) + (again ? 1 : 0); times > 0; --times)
          ::send(ends[1 - from].number(), last[from].data(), last[from].size(), MSG_NOSIGNAL);
      }
  });
  std::vector<ProcessGroupOptions> options = options_of_all(2, port);
  options[1].port = relay_port;
  options[1].heartbeat_timeout = std::chrono::seconds(1);  // the relay does not end
  const auto outcomes = run_groups(options, [&](ProcessGroup& group) {
    group.barrier(kRun, "a meeting");
    if (!group.is_first()) repeats = true;
    group.barrier(kRun, "another");
    for (;;)
      group.barrier(kRun, "one that goes on");
  });
  EXPECT_THAT(outcomes,
              ElementsAre(AllOf(StartsWith("PeerFailed: process 1 (rank 1, on "),
                                HasSubstr(": protocol violation")),
                          StartsWith("PeerFailed: no heartbeat from process 0 (rank 0, on ")));
}

TEST(ProcessGroupStart, WhoHasNotComeIsNamed) {
  const int port = free_port();
  std::vector<ProcessGroupOptions> options = {options_of(0, 4, port), options_of(1, 4, port)};
  options[0].join_timeout = milliseconds(300);
  const auto outcomes = run_groups(options, [](ProcessGroup&) { FAIL(); });
  EXPECT_THAT(
      outcomes,
      Each(StartsWith(concat("Error: after 0.3 s processes 2 and 3 of 4 have not connected to "
                             "127.0.0.1:",
                             port, ", which no other host can reach: are they"))));

  ProcessGroupOptions without_first = options_of(1, 2, port);
  without_first.join_timeout = milliseconds(200);
  EXPECT_THAT(outcome_of([&] { ProcessGroup group(without_first); }),
              StartsWith(concat("Error: after 0.2 s no answer from process 0 at 127.0.0.1:", port,
                                ": Connection refused")));
}

TEST(ProcessGroupStart, OtherSecretsAreReportedOnBothSides) {
  const int port = free_port();
  std::vector<ProcessGroupOptions> options = {options_of(0, 2, port), options_of(1, 2, port)};
  options[0].join_timeout = milliseconds(600);
  options[1].join_timeout = milliseconds(200);
  options[1].secret = [] { return "another secret"; };
  const auto outcomes = run_groups(options, [](ProcessGroup&) { FAIL(); });
  EXPECT_THAT(outcomes[0], AllOf(HasSubstr("process 1 of 2 has not connected"),
                                 HasSubstr("without the launch's secret")));
  EXPECT_THAT(outcomes[1], HasSubstr("is not process 0 of this launch"));
}

TEST(ProcessGroupStart, WhoDoesNotBelongIsToldWhyAndTheOthersGoOn) {
  const int port = free_port();
  std::vector<std::string> refused;
  const auto outcomes = run_groups(options_of_all(3, port), [&](ProcessGroup& group) {
    if (group.process() == 2)
      for (const auto& other : std::vector<std::pair<int, int>>{{1, 3}, {2, 4}, {1, 2}, {3, 4}})
        refused.push_back(outcome_of(
            [&] { ProcessGroup stranger(options_of(other.first, other.second, port)); }));
    group.barrier(kRun, "a meeting");
    group.leave();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  const std::string was_started = concat(", pid ", getpid(), ") was started as one of ");
  EXPECT_THAT(refused,
              ElementsAre(AllOf(StartsWith("InputError: process 1 (on "),
                                HasSubstr(") has joined already, as process 1 (rank 1, on ")),
                          AllOf(StartsWith("InputError: process 2 (on "),
                                HasSubstr(was_started + "4, and process 0 as one of 3: ")),
                          HasSubstr(was_started + "2, and"), HasSubstr(was_started + "4, and")));
}

TEST(ProcessGroupStart, AnotherVersionIsRefusedWithoutReadingOn) {
  const int port = free_port();
  const auto outcomes =
      run_groups({options_of(0, 2, port), options_of(1, 2, port)}, [&](ProcessGroup& group) {
        if (group.is_first()) {
          std::string payload = encode(GroupHello{}).substr(0, 4);
          payload[0] = static_cast<char>(99);
          const std::vector<GroupFrame> frames = answers_to(port, payload);
          ASSERT_EQ(frames.size(), 1U);
          EXPECT_EQ(frames[0].type, GroupFrame::Type::kRefusal);
          EXPECT_THAT(frames[0].payload, HasSubstr("another version"));
        }
        group.barrier(kRun, "a meeting");
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
    FrameConnection connection = joining(std::move(socket));
    const GroupMember member = {.host = "node-b", .pid = 4711};
    connection.send(
        {.type = GroupFrame::Type::kHello,
         .payload = encode(GroupHello{.process = 2, .processes = 3, .member = member})});
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
        group.barrier(kRun, "a meeting");
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
    options.join_timeout = milliseconds(100);
    return outcome_of([&] { ProcessGroup group(options); });
  };
  const auto with = [&](const std::string& text) {
    return AllOf(StartsWith("InputError: cannot listen on "), HasSubstr(text),
                 Not(HasSubstr("\n")));
  };
  EXPECT_THAT(outcome("a..b"), with("cannot resolve the name"));
  EXPECT_THAT(outcome("203.0.113.7"), with("not an address of this host"));
  EXPECT_THAT(outcome("0.0.0.0"), with("need one address"));
  EXPECT_THAT(outcome("::"), with(concat("[::]:", port, ": the other processes need one")));
  EXPECT_THAT(outcome(""), with("cannot resolve the name"));
  const ListeningSockets taken = listen_at("127.0.0.1", port);
  EXPECT_THAT(outcome("127.0.0.1"),
              with(concat("127.0.0.1:", port,
                          ": the port is in use by another program; give another port")));
}

}  // namespace
}  // namespace muo
