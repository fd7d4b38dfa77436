#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "contract/backend_contract.h"

namespace muo::test {
namespace {

class CommunicatorContract : public BackendContract {};
MUO_FOR_EVERY_BACKEND(CommunicatorContract);
MUO_FOR_EVERY(Processes, CommunicatorContract, kSeveralProcesses);
MUO_FOR_EVERY(Shared, CommunicatorContract, kSharedByNccl);

// Small integers: sums are exact in any order, so every backend must return exactly these values.
float value(int rank, std::size_t i) {
  return static_cast<float>(10 * (rank + 1)) + static_cast<float>(i);
}
Floats values(int rank, std::size_t n) {
  Floats out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = value(rank, i);
  return out;
}
Floats summed(int world, std::size_t n) {
  Floats out(n);
  for (int r = 0; r < world; ++r)
    for (std::size_t i = 0; i < n; ++i)
      out[i] += value(r, i);
  return out;
}
Floats part(const Floats& whole, std::size_t begin, std::size_t n) {
  const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(n)};
}
void append(Floats& to, const Floats& more) { to.insert(to.end(), more.begin(), more.end()); }

constexpr std::size_t kSegment = 3;

// Captures the collective and launches it twice, so that the state that a replay leaves is tested,
// too.
void collective(RankContext& rank, const std::function<void()>& enqueue) {
  const auto fork = rank.device.make_event();
  const auto join = rank.device.make_event();
  const auto graph = rank.compute.capture([&] {
    rank.compute.record(*fork);
    rank.comm.wait(*fork);
    enqueue();
    rank.comm.record(*join);
    rank.compute.wait(*join);
  });
  // On GPUs, no rank may make a graph while a peer's kernel waits for it on a device that they may
  // share.
  rank.barrier.arrive();
  for (int i = 0; i < 2; ++i)
    rank.compute.launch(*graph);
  rank.compute.synchronize();
  rank.communicator.check();
}

TEST_P(CommunicatorContract, EqualSegmentsGoWhereTheyBelong) {
  for (const int world : {1, 2, 3, 4}) {
    const std::size_t n = kSegment * static_cast<std::size_t>(world);
    run(world, [&](RankContext& rank) {
      const auto r = static_cast<std::size_t>(rank.rank);
      const DeviceVector<float> full(rank, values(rank.rank, n));
      const DeviceVector<float> shard(rank, kSegment);
      const DeviceVector<float> gathered(rank, static_cast<std::int64_t>(n));
      const DeviceVector<float> exchanged(rank, static_cast<std::int64_t>(n));
      collective(rank, [&] {
        rank.communicator.reduce_scatter(rank.comm, 1, shard, full);
        rank.communicator.all_gather(rank.comm, 2, gathered, shard);
        rank.communicator.all_to_all(rank.comm, 3, exchanged, full);
      });
      EXPECT_EQ(shard.get(), part(summed(world, n), r * kSegment, kSegment));
      EXPECT_EQ(gathered.get(), summed(world, n));
      Floats expected;
      for (int peer = 0; peer < world; ++peer)
        append(expected, part(values(peer, n), r * kSegment, kSegment));
      EXPECT_EQ(exchanged.get(), expected);
    });
  }
}

TEST_P(CommunicatorContract, WholeVectorsReachEveryRankOrTheRoot) {
  constexpr std::size_t kSize = 7;
  for (const int world : {1, 2, 3, 4}) {
    const int root = world - 1;
    run(world, [&](RankContext& rank) {
      const DeviceVector<float> in(rank, values(rank.rank, kSize));
      const DeviceVector<float> sum(rank, kSize);
      const DeviceVector<float> at_root(rank, kSize);
      const DeviceVector<float> sent(rank, values(rank.rank, kSize));
      const bool is_root = rank.rank == root;
      collective(rank, [&] {
        rank.communicator.all_reduce(rank.comm, 1, sum, in);
        rank.communicator.reduce(rank.comm, 2, is_root ? at_root.tensor() : Tensor{}, in, root);
        rank.communicator.broadcast(rank.comm, 3, sent, root);
      });
      EXPECT_EQ(sum.get(), summed(world, kSize));
      EXPECT_EQ(at_root.get(), is_root ? summed(world, kSize) : Floats(kSize));
      EXPECT_EQ(sent.get(), values(root, kSize));
    });
  }
}

TEST_P(CommunicatorContract, UnequalPartsGoWhereTheyBelong) {
  const std::vector<std::int64_t> all_counts = {4, 0, 7, 1};
  for (const int world : {1, 2, 3, 4}) {
    const std::vector<std::int64_t> counts(all_counts.begin(), all_counts.begin() + world);
    const int root = world / 2;
    run(world, [&](RankContext& rank) {
      const auto size = [&](int r) {
        return static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]);
      };
      Floats whole;
      std::size_t begin = 0;
      for (int r = 0; r < world; ++r) {
        if (r == rank.rank) begin = whole.size();
        append(whole, values(r, size(r)));
      }
      const auto total = static_cast<std::int64_t>(whole.size());
      const DeviceVector<float> mine(rank, values(rank.rank, size(rank.rank)));
      const DeviceVector<float> everywhere(rank, total);
      const DeviceVector<float> at_root(rank, total);
      const DeviceVector<float> back(rank, static_cast<std::int64_t>(size(rank.rank)));
      const Tensor full = rank.rank == root ? at_root.tensor() : Tensor{};
      collective(rank, [&] {
        rank.communicator.all_gather_v(rank.comm, 1, everywhere, mine, counts);
        rank.communicator.gather(rank.comm, 2, full, mine, counts, root);
        rank.communicator.scatter(rank.comm, 3, back, full, counts, root);
      });
      EXPECT_EQ(everywhere.get(), whole);
      if (rank.rank == root) {
        EXPECT_EQ(at_root.get(), whole);
      }
      EXPECT_EQ(back.get(), part(whole, begin, size(rank.rank)));
    });
  }
}

TEST_P(CommunicatorContract, SumsAndGathersMayWorkInPlace) {
  constexpr int kWorld = 3;
  constexpr std::size_t kSize = kSegment * kWorld;
  run(kWorld, [&](RankContext& rank) {
    const DeviceVector<float> sum(rank, values(rank.rank, kSize));
    const DeviceVector<float> full(rank, values(rank.rank, kSize));
    const DeviceVector<float> scattered(rank, values(rank.rank, kSize));
    const std::int64_t begin = rank.rank * static_cast<std::int64_t>(kSegment);
    const Tensor own = scattered.tensor().elements(begin, kSegment);
    rank.barrier.arrive();  // no rank may allocate while a peer's kernel waits
    rank.communicator.all_reduce(rank.comm, 1, sum, sum);
    rank.communicator.all_gather(rank.comm, 2, full, full.tensor().elements(begin, kSegment));
    rank.communicator.reduce_scatter(rank.comm, 3, own, scattered);
    rank.comm.synchronize();
    EXPECT_EQ(sum.get(), summed(kWorld, kSize));
    const auto at = static_cast<std::size_t>(begin);
    EXPECT_EQ(part(scattered.get(), at, kSegment), part(summed(kWorld, kSize), at, kSegment));
    Floats expected;
    for (int peer = 0; peer < kWorld; ++peer)
      append(expected,
             part(values(peer, kSize), static_cast<std::size_t>(peer) * kSegment, kSegment));
    EXPECT_EQ(full.get(), expected);
  });
}

// bf16 on the wire. Integers up to 256 are exact in bf16, but sums of three of them in fp32 only: a
// sum that is stored in bf16 is rounded once, at the end.
TEST_P(CommunicatorContract, BF16TravelsAndSumsInFp32) {
  constexpr int kWorld = 3;
  constexpr std::size_t kSize = kSegment * kWorld;
  const auto narrow = [](const Floats& x) {
    std::vector<BF16> out(x.size());
    std::ranges::transform(x, out.begin(), to_bf16);
    return out;
  };
  const auto wide = [](const std::vector<BF16>& x) {
    Floats out(x.size());
    std::ranges::transform(x, out.begin(), [](BF16 v) { return to_f32(v); });
    return out;
  };
  const auto large = [](int rank) {  // 201 + 223 + 245 + 3 i: odd and above 512 for even i
    Floats out(kSize);
    for (std::size_t i = 0; i < kSize; ++i)
      out[i] = static_cast<float>(201 + 22 * rank) + static_cast<float>(i);
    return out;
  };
  Floats sum(kSize);
  for (int r = 0; r < kWorld; ++r)
    for (std::size_t i = 0; i < kSize; ++i)
      sum[i] += large(r)[i];
  ASSERT_NE(wide(narrow(sum)), sum);
  const std::vector<std::int64_t> counts = {4, 0, 5};
  constexpr int kRoot = 1;

  run(kWorld, [&](RankContext& rank) {
    const std::size_t begin = static_cast<std::size_t>(rank.rank) * kSegment;
    const DeviceVector<BF16> in(rank, narrow(large(rank.rank)));
    const DeviceVector<BF16> everywhere(rank, kSize), shard(rank, kSegment), gathered(rank, kSize),
        gathered_v(rank, 9), at_root(rank, kSize);
    const DeviceVector<float> wide_shard(rank, kSegment), wide_at_root(rank, kSize);
    const bool is_root = rank.rank == kRoot;
    collective(rank, [&] {
      Communicator& c = rank.communicator;
      c.all_reduce(rank.comm, 1, everywhere, in);
      c.reduce_scatter(rank.comm, 2, shard, in);
      c.reduce_scatter(rank.comm, 3, wide_shard, in);
      c.reduce(rank.comm, 4, is_root ? at_root.tensor() : Tensor{}, in, kRoot);
      c.reduce(rank.comm, 5, is_root ? wide_at_root.tensor() : Tensor{}, in, kRoot);
      c.all_gather(rank.comm, 6, gathered, shard);
      c.all_gather_v(rank.comm, 7, gathered_v,
                     in.tensor().elements(0, counts[static_cast<std::size_t>(rank.rank)]), counts);
    });
    const Floats rounded = wide(narrow(sum));
    EXPECT_EQ(wide(everywhere.get()), rounded);
    EXPECT_EQ(wide(shard.get()), part(rounded, begin, kSegment));
    EXPECT_EQ(wide_shard.get(), part(sum, begin, kSegment));
    EXPECT_EQ(wide(at_root.get()), is_root ? rounded : Floats(kSize));
    EXPECT_EQ(wide_at_root.get(), is_root ? sum : Floats(kSize));
    EXPECT_EQ(wide(gathered.get()), rounded);
    Floats parts = part(large(0), 0, 4);
    append(parts, part(large(2), 0, 5));
    EXPECT_EQ(wide(gathered_v.get()), parts);
  });
}

TEST_P(CommunicatorContract, BF16IsGatheredAsItIs) {
  run(2, [](RankContext& rank) {
    const auto mine = static_cast<std::uint16_t>(0x4000 + rank.rank);
    const DeviceVector<BF16> in(rank, std::vector<BF16>(3, BF16{mine}));
    const DeviceVector<BF16> equal(rank, 6), unequal(rank, 3);
    const std::vector<std::int64_t> counts = {1, 2};
    collective(rank, [&] {
      rank.communicator.all_gather(rank.comm, 1, equal, in);
      rank.communicator.all_gather_v(rank.comm, 2, unequal, in.tensor().elements(0, rank.rank + 1),
                                     counts);
    });
    const auto bits = [](const std::vector<BF16>& values) {
      std::vector<int> out(values.size());
      std::ranges::transform(values, out.begin(), [](BF16 v) { return v.bits - 0x4000; });
      return out;
    };
    EXPECT_EQ(bits(equal.get()), (std::vector<int>{0, 0, 0, 1, 1, 1}));
    EXPECT_EQ(bits(unequal.get()), (std::vector<int>{0, 1, 1}));
  });
}

TEST_P(CommunicatorContract, WhatCannotBeIsAnErrorBeforeAnythingIsSent) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> four(rank, 4);
    const DeviceVector<float> three(rank, 3);
    const DeviceVector<std::int32_t> integers(rank, 4);
    const DeviceVector<BF16> halves(rank, 4);
    Communicator& c = rank.communicator;
    const std::vector<std::int64_t> wrong = {3};
    EXPECT_THROW(c.reduce_scatter(rank.comm, 1, three, four), Error);
    EXPECT_THROW(c.all_gather(rank.comm, 1, four, three), Error);
    EXPECT_THROW(c.all_gather(rank.comm, 1, four, integers), Error);
    EXPECT_THROW(c.all_gather_v(rank.comm, 1, four, four, wrong), Error);
    EXPECT_THROW(c.all_reduce(rank.comm, 1, four, three), Error);
    EXPECT_THROW(c.all_reduce(rank.comm, 1, four, integers), Error);
    EXPECT_THROW(c.reduce(rank.comm, 1, four, three, 1), Error);
    EXPECT_THROW(c.reduce(rank.comm, 1, four, four, 0), Error);  // overlap
    EXPECT_THROW(c.reduce(rank.comm, 1, halves, four, 0), Error);
    EXPECT_THROW(c.reduce_scatter(rank.comm, 1, halves, four), Error);
    EXPECT_THROW(c.broadcast(rank.comm, 1, four, -1), Error);
    EXPECT_THROW(c.all_to_all(rank.comm, 1, four, three), Error);
  });
}

TEST_P(CommunicatorContract, RankAndWorldAreThoseOfTheGroup) {
  run(3, [](RankContext& rank) {
    EXPECT_EQ(rank.world, 3);
    EXPECT_EQ(rank.communicator.world(), 3);
    EXPECT_EQ(rank.communicator.rank(), rank.rank);
    EXPECT_EQ(rank.device.rank(), rank.rank);
    EXPECT_EQ(rank.communicator.bytes_sent(), 0);
  });
}

// Ranks make different numbers of calls, so that a wait for a peer would never end.
TEST_P(CommunicatorContract, AMutedOneIsCheckedAndDoesNothing) {
  run(3, [](RankContext& rank) {
    const DeviceVector<float> in(rank, values(rank.rank, 4));
    const DeviceVector<float> out(rank, Floats(4, -1.0F));
    rank.communicator.mute(true);
    for (int i = 0; i < rank.rank; ++i)
      rank.communicator.all_reduce(rank.comm, 1, out, in);
    EXPECT_THROW(rank.communicator.all_reduce(rank.comm, 1, out.tensor().elements(0, 3), in),
                 Error);
    rank.communicator.mute(false);
    rank.comm.synchronize();
    EXPECT_EQ(out.get(), Floats(4, -1.0F));
    EXPECT_EQ(rank.communicator.bytes_sent(), 0);
    rank.barrier.arrive();
    rank.communicator.all_reduce(rank.comm, 2, out, in);
    rank.comm.synchronize();
    EXPECT_EQ(out.get(), summed(3, 4));
  });
}

}  // namespace
}  // namespace muo::test
