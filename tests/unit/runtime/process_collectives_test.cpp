// Collectives of the host backend whose ranks are in several processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/device_group.h"
#include "runtime/host/host_communicator.h"
#include "runtime/rank_progress.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/split_world.h"
#include "support/tensors.h"
#include "unit/runtime/every_collective.h"

namespace muo {
namespace {

using test::Bytes;
using test::collective_input;
using test::every_collective;
using test::HostTensor;
using test::message_of;
using test::RankBody;
using test::SplitWorld;
using testing::HasSubstr;

using Split = std::vector<int>;

int ranks_of(const Split& split) {
  int sum = 0;
  for (const int count : split)
    sum += count;
  return sum;
}

void run(const Split& split, const RankBody& body) {
  if (split.size() == 1) {
    DeviceGroup group({.world = split[0]});
    group.run(body);
  } else {
    SplitWorld(split).run(body);
  }
}

std::vector<Bytes> results_of(const Split& split, std::int64_t size, DType dtype) {
  std::vector<Bytes> by_rank(static_cast<std::size_t>(ranks_of(split)));
  run(split, [&](RankContext& rank) {
    by_rank[static_cast<std::size_t>(rank.rank)] = every_collective(rank, size, dtype);
  });
  return by_rank;
}

TEST(ProcessCollectives, AreBitwiseThoseOfOneProcess) {
  const std::vector<Split> splits = {{1, 1}, {2, 1}, {2, 2},    {1, 3},
                                     {3, 1}, {2, 3}, {1, 1, 2}, {1, 1, 1, 1}};
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64, DType::kBytes})
    for (const std::int64_t size : {1, 2, 1031, 2053})
      for (const Split& split : splits) {
        const std::vector<Bytes> expected = results_of({ranks_of(split)}, size, dtype);
        const std::vector<Bytes> got = results_of(split, size, dtype);
        for (std::size_t rank = 0; rank < got.size(); ++rank)
          ASSERT_EQ(got[rank], expected[rank])
              << name_of(dtype) << " of " << size << ", rank " << rank << ", processes "
              << testing::PrintToString(split);
      }
}

// The test above relies on this to detect a different order of sums.
TEST(ProcessCollectives, OfTheseInputsAnotherOrderHasOtherSums) {
  const auto sum = [](const std::vector<int>& ranks) {
    std::vector<float> out(1031);
    for (const int rank : ranks)
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += collective_input(rank, 1031, DType::kF32).values()[i];
    return out;
  };
  EXPECT_NE(sum({0, 1, 2, 3}), sum({2, 3, 0, 1}));
}

TEST(ProcessCollectives, EachProcessIsSentWhatItsRanksNeed) {
  constexpr std::size_t kBytes = 4 * sizeof(float);  // of the whole vector, for four ranks
  using Enqueue = void (*)(RankContext&, const Tensor&, const Tensor&);
  struct Case {
    const char* name;
    Enqueue enqueue;
    std::size_t to_one, to_three;  // payload from 3 ranks to 1, and from 1 to 3
  };
  const Case cases[] = {
      {"reduce_scatter",
       [](RankContext& rank, const Tensor& whole, const Tensor& other) {
         rank.communicator.reduce_scatter(rank.comm, 1, other.elements(0, 1), whole);
       },
       3 * kBytes / 4, 3 * kBytes / 4},
      {"all_gather",
       [](RankContext& rank, const Tensor& whole, const Tensor& other) {
         rank.communicator.all_gather(rank.comm, 1, whole, other.elements(0, 1));
       },
       3 * kBytes / 4, kBytes / 4},
      {"all_reduce",
       [](RankContext& rank, const Tensor& whole, const Tensor& other) {
         rank.communicator.all_reduce(rank.comm, 1, other, whole);
       },
       3 * kBytes / 4 + 3 * kBytes / 4, 3 * kBytes / 4 + kBytes / 4},
      {"reduce",
       [](RankContext& rank, const Tensor& whole, const Tensor& other) {
         rank.communicator.reduce(rank.comm, 1, rank.rank == 3 ? other : Tensor{}, whole, 3);
       },
       3 * kBytes, 0},
      {"broadcast",
       [](RankContext& rank, const Tensor& whole, const Tensor&) {
         rank.communicator.broadcast(rank.comm, 1, whole, 3);
       },
       0, kBytes},
      {"all_to_all",
       [](RankContext& rank, const Tensor& whole, const Tensor& other) {
         rank.communicator.all_to_all(rank.comm, 1, other, whole);
       },
       3 * kBytes / 4, 3 * kBytes / 4},
  };
  const auto sent = [](const SplitWorld& world) {
    return std::pair(world.exchange().sent(0, 1), world.exchange().sent(1, 0));
  };
  SplitWorld idle({3, 1});  // an empty collective: the overhead of each
  idle.run([](RankContext& rank) {
    const HostTensor none({0});
    rank.communicator.all_reduce(rank.comm, 1, none, none);
  });
  for (const Case& each : cases) {
    SplitWorld world({3, 1});
    world.run([&](RankContext& rank) {
      const HostTensor whole({4}), other({4});
      each.enqueue(rank, whole, other);
    });
    EXPECT_EQ(sent(world).first - sent(idle).first, each.to_one) << each.name;
    EXPECT_EQ(sent(world).second - sent(idle).second, each.to_three) << each.name;
  }
}

// Rank `odd` enters another collective than the others. Returns the ranks' messages.
std::multiset<std::string> errors_of(const Split& split, int odd, bool counts_differ) {
  std::multiset<std::string> errors;
  std::mutex mutex;
  const auto body = [&](RankContext& rank) {
    const bool differs = rank.rank == odd;
    const std::string error = message_of<Error>([&] {
      if (counts_differ) {  // of other ranks, with the same sum
        const std::vector<std::int64_t> counts = differs ? std::vector<std::int64_t>{3, 3, 4, 2, 3}
                                                         : std::vector<std::int64_t>{3, 3, 3, 3, 3};
        const HostTensor full({15});
        const HostTensor part({counts[static_cast<std::size_t>(rank.rank)]});
        rank.communicator.all_gather_v(rank.comm, 7, full, part, counts);
      } else {
        const HostTensor t({12});
        rank.communicator.all_reduce(rank.comm, differs ? 8 : 7, t, t);
      }
    });
    const std::lock_guard lock(mutex);
    errors.insert(error);
  };
  run(split, body);
  return errors;
}

TEST(ProcessCollectives, AMispairedOneIsTheSameErrorOnEveryRankOfEveryProcess) {
  for (const bool counts_differ : {false, true})
    for (int odd = 0; odd < 5; ++odd) {
      const std::multiset<std::string> expected = errors_of({5}, odd, counts_differ);
      EXPECT_EQ(expected.count(*expected.begin()), 5);
      EXPECT_THAT(*expected.begin(), HasSubstr("collectives are mispaired: rank 0 enters"));
      for (const Split& split : {Split{1, 4}, Split{4, 1}, Split{2, 3}, Split{1, 2, 2}})
        EXPECT_EQ(errors_of(split, odd, counts_differ), expected)
            << "rank " << odd << " of processes " << testing::PrintToString(split);
    }
}

TEST(ProcessCollectives, OnlyTheRootOfAReduceNeedsToKnowWhatItIsReducedInto) {
  const std::vector<std::vector<float>> values = {{1, 256}, {2, 0}, {3, 1}};
  SplitWorld world({1, 2});
  world.run([&](RankContext& rank) {
    const HostTensor in =
        HostTensor({2}, values[static_cast<std::size_t>(rank.rank)]).rounded(DType::kBF16);
    const HostTensor wide({2});
    rank.communicator.reduce(rank.comm, 1, rank.rank == 1 ? wide.tensor() : Tensor{}, in, 1);
    rank.comm.synchronize();
    if (rank.rank == 1) {
      EXPECT_THAT(wide.values(), testing::ElementsAre(6, 257));  // 257 is not representable in bf16
    }
  });
}

TEST(ProcessCollectives, AnAbortReleasesWhoWaitsForAnotherProcess) {
  SplitWorld world({2, 1});
  std::atomic<int> released = 0;
  std::array<std::atomic<const RankProgress*>, 2> progress = {};
  const auto waits = [](const RankProgress* rank) {
    return rank != nullptr && rank->view().activity == Activity::kPeers;
  };
  const auto body = [&](RankContext& rank) {
    if (rank.rank == 2) {  // never enters
      EXPECT_TRUE(test::eventually([&] { return std::ranges::all_of(progress, waits); }));
      return world.abort();
    }
    progress.at(static_cast<std::size_t>(rank.rank)) = &rank.progress;
    const HostTensor t({4});
    EXPECT_THROW(rank.communicator.all_reduce(rank.comm, 1, t, t), PeerFailed);
    ++released;
    EXPECT_THROW(rank.communicator.all_reduce(rank.comm, 2, t, t), PeerFailed);
  };
  world.run(body);
  EXPECT_EQ(released, 2);
}

class BrokenExchange final : public ProcessExchange {
 public:
  void exchange(std::span<const Send>, std::span<const Receive>) override {
    throw Error("the wire is cut");
  }
  void abort() noexcept override {}
};

TEST(ProcessCollectives, AFailureOfTheEngineIsTheCauseOfOneRankAndReleasesTheOthers) {
  BrokenExchange exchange;
  test::LocalRanks process(test::world_of({2, 1}, 0, &exchange));
  EXPECT_EQ(message_of<Error>([&] {
              process.run([](RankContext& rank) {
                const HostTensor t({4});
                rank.communicator.all_reduce(rank.comm, 1, t, t);
              });
            }),
            "the wire is cut");
}

TEST(ProcessCollectives, RangesThatAreNoWorldAreRefused) {
  BrokenExchange exchange;
  Rendezvous meeting(1);
  const auto group = [&](std::vector<RankRange> ranges) {
    HostCommunicatorGroup({.processes = std::move(ranges), .exchange = &exchange}, meeting);
  };
  EXPECT_NO_THROW(group({{0, 1}, {1, 2}}));
  EXPECT_THROW(group({{0, 1}, {2, 2}}), Error);
  EXPECT_THROW(group({{1, 1}, {2, 1}}), Error);
  EXPECT_THROW(group({{0, 0}, {0, 2}}), Error);
}

}  // namespace
}  // namespace muo
