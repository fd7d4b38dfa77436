#include "runtime/device_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/check.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"
#include "support/errors.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::HostTensor;
using test::message_of;

constexpr int kWorld = 4;
constexpr int kFailing = 2;

TEST(DeviceGroup, RunsEachRankOnceOnItsOwnThread) {
  DeviceGroup group({.world = kWorld});
  std::mutex mutex;
  std::set<int> ranks;
  std::set<std::thread::id> threads;
  group.run([&](RankContext& rank) {
    rank.barrier.arrive();
    const std::lock_guard lock(mutex);
    ranks.insert(rank.rank);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(threads.size(), 4U);
}

TEST(DeviceGroup, RunsAgainAfterAGoodEnd) {
  DeviceGroup group({.world = kWorld});
  std::atomic<int> count = 0;
  for (int i = 0; i < 3; ++i)
    group.run([&](RankContext& rank) {
      rank.barrier.arrive();
      ++count;
    });
  EXPECT_EQ(count, 3 * kWorld);
}

void expect_branches(const GroupOptions& options, bool one) {
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    EXPECT_EQ(&rank.comm == &rank.compute, one);
    EXPECT_EQ(&rank.update == &rank.compute, one);
  });
}

TEST(DeviceGroup, OneBranchIsOneStreamAndTheDefaultOfRanksThatShareADevice) {
  expect_branches({.world = 2}, /*one=*/false);
  expect_branches({.world = 2, .branches = Branches::kOne}, /*one=*/true);
  expect_branches({.world = 2, .ranks_per_device = 2}, /*one=*/true);
  expect_branches({.world = 2, .branches = Branches::kThree, .ranks_per_device = 2},
                  /*one=*/false);
}

TEST(DeviceGroup, RefusesAnEmptyWorld) { EXPECT_THROW(DeviceGroup({.world = 0}), Error); }

// Communicators that are complete once all ranks have joined.
class Meeting final : public CommunicatorGroup {
 public:
  explicit Meeting(const CommunicatorMembers& members)
      : rendezvous_(members.rendezvous),
        group_(make_host_communicators(members.world, members.rendezvous)) {}
  ~Meeting() override { EXPECT_GE(aborted_, 1); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  std::unique_ptr<Communicator> join(Device& device) override {
    rendezvous_.arrive();
    return group_->join(device);
  }
  void abort() noexcept override { ++aborted_; }

 private:
  Rendezvous& rendezvous_;
  std::unique_ptr<CommunicatorGroup> group_;
  std::atomic<int> aborted_ = 0;
};

TEST(DeviceGroup, ADeviceThatCannotBeMadeReleasesTheRanksThatWaitForIt) {
  const BackendPlugin plugin{
      .make_device = [](int rank, int index) -> std::unique_ptr<Device> {
        MUO_CHECK(index == rank / 2, "rank ", rank, " on device ", index);
        if (rank == kFailing) throw Error("no memory left");
        return std::make_unique<HostDevice>(rank);
      },
      .make_communicators = [](CommunicatorKind, const CommunicatorMembers& members,
                               std::chrono::milliseconds) -> std::unique_ptr<CommunicatorGroup> {
        return std::make_unique<Meeting>(members);
      }};
  const std::string message = message_of<Error>(
      [&] { DeviceGroup group({.world = kWorld, .plugin = &plugin, .ranks_per_device = 2}); });
  EXPECT_EQ(message, concat("rank ", kFailing, ": no memory left"));
}

// The phase in which a rank fails while its peers wait for it.
enum class Phase : std::uint8_t { kEager, kBarrier, kCollective, kReplay, kCapture };

// Body of a rank in fail_in().
void meet(RankContext& rank, Phase phase, const std::function<void()>& failure) {
  const HostTensor values({8});
  const auto fail_here = [&] {
    if (rank.rank == kFailing) failure();
  };
  const auto enqueue_failure = [&] { rank.comm.enqueue_host("work", {}, fail_here); };
  const auto reduce = [&](Tag tag) {
    rank.communicator.all_reduce(rank.comm, tag, values, values);
  };
  switch (phase) {
    case Phase::kEager:
      enqueue_failure();
      reduce(1);
      break;
    case Phase::kBarrier:
      fail_here();
      rank.barrier.arrive();
      break;
    case Phase::kCollective:
      fail_here();
      reduce(1);
      break;
    case Phase::kReplay: {
      const auto graph = rank.comm.capture([&] {
        reduce(1);
        enqueue_failure();
        reduce(2);
      });
      rank.comm.launch(*graph);
      break;
    }
    case Phase::kCapture: {
      const auto graph = rank.comm.capture([&] {
        fail_here();
        reduce(1);
      });
      rank.comm.launch(*graph);
      break;
    }
  }
  ADD_FAILURE() << "rank " << rank.rank << " got past the failure";
}

std::string fail_in(Phase phase, const std::function<void()>& failure) {
  const auto start = std::chrono::steady_clock::now();
  DeviceGroup group({.world = kWorld});
  std::string message =
      message_of<Error>([&] { group.run([&](RankContext& rank) { meet(rank, phase, failure); }); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  return message;
}

TEST(DeviceGroup, ARankThatThrowsInAnyPhaseEndsTheGroupAtOnceWithItsOwnMessage) {
  for (const Phase phase :
       {Phase::kEager, Phase::kBarrier, Phase::kCollective, Phase::kReplay, Phase::kCapture}) {
    SCOPED_TRACE(static_cast<int>(phase));
    EXPECT_EQ(fail_in(phase, [] { throw Error("it broke"); }), "rank 2: it broke");
    EXPECT_EQ(fail_in(phase, [] { throw std::out_of_range("too far"); }), "rank 2: too far");
  }
}

TEST(DeviceGroup, ASlowRootCauseBeatsTheFailuresItProvokes) {
  DeviceGroup group({.world = 2});
  const std::string message = message_of<Error>([&] {
    group.run([](RankContext& rank) {
      if (rank.rank == 0) rank.barrier.arrive();  // PeerFailed, and it returns first
      try {
        throw Error("first cause");
      } catch (const Error&) {
        rank.barrier.break_all();
        const auto until_the_group_has_failed = [&] {
          for (;;)
            rank.progress.enter("a wait for the other rank");
        };
        EXPECT_THROW(until_the_group_has_failed(), PeerFailed);
        throw;
      }
    });
  });
  EXPECT_EQ(message, "rank 1: first cause");
}

TEST(DeviceGroup, KeepsTheUsersErrorsAsTheyAre) {
  DeviceGroup group({.world = kWorld});
  const std::string message = message_of<InputError>([&] {
    group.run([](RankContext& rank) {
      if (rank.rank == kFailing) throw InputError("bad text");
      rank.barrier.arrive();
    });
  });
  EXPECT_EQ(message, "bad text");
}

TEST(DeviceGroup, ReportsWhatIsNotAnException) {
  DeviceGroup group({.world = 1});
  const std::string message = message_of<Error>([&] { group.run([](RankContext&) { throw 7; }); });
  EXPECT_EQ(message, "rank 0: an exception of unknown type");
}

TEST(DeviceGroup, IsUnusableAfterAFailure) {
  DeviceGroup group({.world = kWorld});
  EXPECT_THROW(group.run([](RankContext&) { throw Error("it broke"); }), Error);
  const std::string message = message_of<Error>([&] { group.run([](RankContext&) {}); });
  EXPECT_NE(message.find("has failed before"), std::string::npos) << message;
}

TEST(DeviceGroup, ACollectiveThatOneRankLeavesOutIsAnErrorNotAHang) {
  DeviceGroup group({.world = kWorld});
  const std::string message = message_of<Error>([&] {
    group.run([](RankContext& rank) {
      const HostTensor values({8});
      if (rank.rank != kFailing) rank.communicator.all_reduce(rank.comm, 1, values, values);
    });
  });
  EXPECT_NE(message.find("waits in a collective, but another has"), std::string::npos) << message;
}

TEST(DeviceGroup, ABarrierWherePeersHaveACollectiveIsAnErrorNotAHang) {
  DeviceGroup group({.world = 2});
  const std::string message = message_of<Error>([&] {
    group.run([](RankContext& rank) {
      const HostTensor values({8});
      if (rank.rank == 0)
        rank.communicator.all_reduce(rank.comm, 1, values, values);
      else
        rank.barrier.arrive();
    });
  });
  EXPECT_NE(message.find("ranks wait in a"), std::string::npos) << message;
}

}  // namespace
}  // namespace muo
