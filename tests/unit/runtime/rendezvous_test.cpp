#include "runtime/rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"
#include "support/errors.h"

namespace muo {
namespace {

using test::message_of;

TEST(Rendezvous, NobodyPassesBeforeAllHaveArrivedAndTheLeaderHasRun) {
  constexpr int kWorld = 4;
  constexpr int kRounds = 200;
  Rendezvous rendezvous(kWorld);
  std::atomic<int> arrived = 0;
  int led = 0;  // guarded by the rendezvous only: a data race here is a defect of it
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(kWorld);
    for (int rank = 0; rank < kWorld; ++rank)
      threads.emplace_back([&] {
        for (int round = 1; round <= kRounds; ++round) {
          ++arrived;
          rendezvous.arrive([&] { ++led; });
          if (arrived < kWorld * round || led != round) ++wrong;
          rendezvous.arrive();
        }
      });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(led, kRounds);
}

TEST(Rendezvous, BreakingReleasesThoseWhoWaitAndThoseWhoComeLater) {
  Rendezvous rendezvous(3);
  std::atomic<int> released = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(2);
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&] {
        EXPECT_THROW(rendezvous.arrive(), PeerFailed);
        ++released;
      });
    rendezvous.break_all();
  }
  EXPECT_EQ(released, 2);
  EXPECT_THROW(rendezvous.arrive(), PeerFailed);
}

TEST(Rendezvous, ALeaderThatThrowsBreaksIt) {
  Rendezvous rendezvous(2);
  std::atomic<int> own = 0;
  std::atomic<int> peers = 0;
  const auto rank = [&] {
    try {
      rendezvous.arrive([] { throw Error("the leader's"); });
    } catch (const PeerFailed&) {
      ++peers;
    } catch (const Error&) {
      ++own;
    }
  };
  {
    const std::jthread one(rank);
    const std::jthread two(rank);
  }
  EXPECT_EQ(own, 1);
  EXPECT_EQ(peers, 1);
}

TEST(Rendezvous, WaitingForARankThatHasReturnedIsAnErrorNotAHang) {
  Rendezvous rendezvous(2);
  std::string waited;
  {
    const std::jthread waits(
        [&] { waited = message_of<Error>([&] { rendezvous.arrive({}, "collective"); }); });
    const std::jthread leaves([&] { rendezvous.leave(); });
  }
  EXPECT_NE(waited.find("waits in a collective"), std::string::npos) << waited;
}

TEST(Rendezvous, MeetingInDifferentPlacesIsAnErrorOnBothRanks) {
  Rendezvous rendezvous(2);
  std::vector<std::string> messages(2);
  {
    const std::jthread one(
        [&] { messages[0] = message_of<Error>([&] { rendezvous.arrive({}, "collective"); }); });
    const std::jthread two(
        [&] { messages[1] = message_of<Error>([&] { rendezvous.arrive({}, "barrier"); }); });
  }
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("in a collective"), std::string::npos) << message;
    EXPECT_NE(message.find("in a barrier"), std::string::npos) << message;
  }
}

TEST(Rendezvous, IsWholeAgainWhenAllHaveLeft) {
  Rendezvous rendezvous(2);
  for (int round = 0; round < 3; ++round) {
    const auto rank = [&] {
      EXPECT_NO_THROW(rendezvous.arrive());
      rendezvous.leave();
    };
    const std::jthread one(rank);
    const std::jthread two(rank);
  }
}

}  // namespace
}  // namespace muo
