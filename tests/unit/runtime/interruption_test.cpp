#include "runtime/interruption.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "runtime/device_group.h"
#include "support/errors.h"
#include "support/tensors.h"

namespace muo {
namespace {

constexpr int kWorld = 3;

// A graph with collectives before and after its close(), after which each rank counts. Requests
// come at random times: in every round all ranks have counted, or none has.
TEST(Interruption, EndsAReplayOnAllRanksOrOnNone) {
  constexpr int kRounds = 400;
  DeviceGroup group({.world = kWorld, .random_order_seed = 7});
  std::atomic<Interruption*> interruption = nullptr;
  std::array<int, kWorld> counts = {};
  int given_up = 0, done = 0;
  std::jthread requests([&](const std::stop_token& ends) {
    for (int i = 0; !ends.stop_requested(); ++i) {
      if (interruption != nullptr) interruption.load()->request();
      std::this_thread::sleep_for(std::chrono::microseconds(i % 7 * 40));
    }
  });
  group.run([&](RankContext& rank) {
    const test::HostTensor mine({kWorld}), sum({kWorld}), more({kWorld});
    int& count = counts.at(static_cast<std::size_t>(rank.rank));
    const auto graph = rank.compute.capture([&] {
      rank.communicator.all_reduce(rank.compute, 1, sum, mine);
      rank.communicator.all_reduce(rank.compute, 2, more, sum);
      rank.compute.before_next([&rank] { rank.interruption->close(); });
      rank.compute.enqueue_host("count", {}, [&count] { ++count; });
      rank.communicator.all_reduce(rank.compute, 3, sum, more);
    });
    for (int round = 0; round < kRounds; ++round) {
      rank.barrier.arrive([&] {
        interruption = rank.interruption;
        rank.interruption->open();
      });
      bool whole = true;
      try {
        rank.compute.launch(*graph);
      } catch (const Interrupted&) {
        whole = false;
        rank.interruption->recover();
      }
      rank.barrier.arrive([&] {
        (whole ? done : given_up) += 1;
        for (const int other : counts)
          EXPECT_EQ(other, done) << "round " << round;
      });
    }
    rank.barrier.arrive([&] { interruption = nullptr; });
  });
  EXPECT_GT(given_up, 0);
  EXPECT_GT(done, 0);
  EXPECT_EQ(given_up + done, kRounds);
}

TEST(Interruption, WakesThoseWhoWaitForAPeerThatIsBusy) {
  DeviceGroup group({.world = kWorld});
  group.run([&](RankContext& rank) {
    rank.barrier.arrive([&] { rank.interruption->open(); });
    if (rank.rank == 0) rank.interruption->request();
    EXPECT_THROW(rank.barrier.arrive(), Interrupted);
    rank.interruption->recover();
    rank.barrier.arrive();
  });
}

TEST(Interruption, DoesNothingToWorkThatIsNotOpen) {
  DeviceGroup group({.world = kWorld});
  group.run([&](RankContext& rank) {
    rank.interruption->request();
    rank.barrier.arrive();
    rank.interruption->check();
    rank.interruption->close();
  });
}

TEST(Interruption, AFailureOfARankIsNotWaitedForByThoseWhoRecover) {
  DeviceGroup group({.world = kWorld});
  EXPECT_EQ(test::message_of<Error>([&] {
              group.run([&](RankContext& rank) {
                rank.barrier.arrive([&] { rank.interruption->open(); });
                rank.interruption->request();
                if (rank.rank == 1) throw Error("a fault");
                rank.interruption->recover();
              });
            }),
            "rank 1: a fault");
}

}  // namespace
}  // namespace muo
