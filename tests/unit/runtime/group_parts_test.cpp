// Unit tests of a process group's parts.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "runtime/comm/frame_connection.h"
#include "runtime/comm/group_handshake.h"
#include "runtime/comm/group_members.h"
#include "runtime/comm/process_group_impl.h"
#include "unit/runtime/process_world.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::connect_to_port;
using test::free_port;

TEST(GroupMembers, AreCountedByHost) {
  GroupMembers members(4);
  for (const int process : {0, 1, 2, 3})
    members.add(process, {.host = process == 1 ? "node-b" : "node-a"});
  EXPECT_EQ(members.processes_on_host_of(0), 3);
  EXPECT_EQ(members.processes_on_host_of(1), 1);
  EXPECT_EQ(members.processes_on_host_of(3), 3);
}

TEST(RunningTime, FollowsTheClockUpToTwiceTheSleep) {
  const auto before = steady_clock::now();
  RunningTime all(seconds(1000)), most(milliseconds(1));
  const auto begin = steady_clock::now();
  auto end = begin;
  while (end - begin < milliseconds(5))
    end = steady_clock::now();
  const auto lap = all.elapsed();
  EXPECT_GE(lap, end - begin);
  EXPECT_LE(lap, steady_clock::now() - before);
  EXPECT_EQ(most.elapsed(), milliseconds(2));
}

// While it exists, the process cannot open files.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

TEST(GroupAcceptor, WithoutFreeDescriptorsStopsPollingAndAcceptsLater) {
  const int port = free_port();
  GroupAcceptor reception(listen_at("127.0.0.1", port), "a secret", seconds(20));
  const FileDescriptor joiner = connect_to_port(port);
  pollfd listening = {.fd = reception.descriptors().at(0), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&listening, 1, -1), 1);
  {
    const NoDescriptors none;
    EXPECT_TRUE(reception.receive({}).empty());
    EXPECT_TRUE(reception.descriptors().empty());
  }
  EXPECT_TRUE(reception.receive({}).empty());
  EXPECT_EQ(reception.descriptors().size(), 2U);  // the listening one, and the joining process'
}

TEST(FrameConnection, AfterTheOtherSideHasGoneMayStillBeSentTo) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  FrameConnection connection(FileDescriptor(ends[0]), Handshake(Handshake::Side::kJoining, "s"));
  auto other = std::make_unique<FrameConnection>(FileDescriptor(ends[1]),
                                                 Handshake(Handshake::Side::kAccepting, "s"));
  std::vector<GroupFrame> frames;
  for (int messages = 0; messages < 2; ++messages) {
    EXPECT_EQ(other->receive(frames), FrameConnection::State::kOpen);
    EXPECT_EQ(connection.receive(frames), FrameConnection::State::kOpen);
  }
  connection.send({.payload = std::string(8 << 20, 'x')});
  ASSERT_TRUE(connection.has_unsent());  // it was sent in part
  other.reset();
  connection.flush();
  EXPECT_FALSE(connection.has_unsent());
  connection.send({});
  EXPECT_FALSE(connection.has_unsent());
}

TEST(ConnectTo, ASocketIsNotConnectedToItself) {
  const SocketAddress address = resolve_name("127.0.0.1", free_port()).addresses.at(0);
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.number(), address.get(), address.size()), 0);
  int error = 0;
  EXPECT_FALSE(connect_to(address, std::move(socket), seconds(20), error));
  EXPECT_EQ(error, ECONNREFUSED);
}

}  // namespace
}  // namespace muo
