#include <gtest/gtest.h>

#include <cstdint>

#include "runtime/device_group.h"
#include "runtime/graph_trace.h"
#include "support/counting_new.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::allocations;
using test::HostTensor;

// Heap allocations of all ranks during `launches` replays of a graph with every kind of node.
std::int64_t allocations_of_replays(std::optional<std::uint64_t> seed, bool one_in_a_task,
                                    bool timed = false) {
  constexpr int kWorld = 3;
  std::int64_t counted_allocations = 0;
  DeviceGroup group({.world = kWorld, .random_order_seed = seed});
  group.run([&](RankContext& rank) {
    Communicator& c = rank.communicator;
    const HostTensor full({3000});
    const HostTensor other({3000});
    const HostTensor shard({1000});
    const Tensor at_root = rank.rank == 1 ? other.tensor() : Tensor{};
    const std::vector<std::int64_t> counts = {1000, 1000, 1000};
    const auto fork = rank.device.make_event();
    const auto join = rank.device.make_event();
    const auto graph = rank.compute.capture([&] {
      rank.compute.zero(full);
      rank.compute.record(*fork);
      rank.comm.wait(*fork);
      c.reduce_scatter(rank.comm, 1, shard, full);
      c.all_gather(rank.comm, 2, full, shard);
      c.all_gather_v(rank.comm, 3, full, shard, counts);
      c.all_reduce(rank.comm, 4, full, full);
      c.reduce(rank.comm, 5, at_root, full, 1);
      c.broadcast(rank.comm, 6, full, 1);
      c.gather(rank.comm, 7, at_root, shard, counts, 1);
      c.scatter(rank.comm, 8, shard, at_root, counts, 1);
      c.all_to_all(rank.comm, 9, other, full);
      rank.comm.record(*join);
      rank.compute.enqueue_host("beside", {}, [one_in_a_task] {
        if (one_in_a_task) ::operator delete(::operator new(1));
      });
      rank.compute.wait(*join);
      rank.compute.copy(other, full);
    });
    rank.compute.launch(*graph);  // the first may allocate
    NodeSums sums(graph->trace());
    if (timed) graph->observe(&sums);
    rank.barrier.arrive();
    const std::int64_t before = allocations;
    rank.barrier.arrive();
    for (int i = 0; i < 5; ++i)
      rank.compute.launch(*graph);
    rank.barrier.arrive();
    const std::int64_t after = allocations;
    rank.barrier.arrive();
    if (rank.rank == 0) counted_allocations = after - before;
  });
  return counted_allocations;
}

TEST(HostGraph, AReplayAllocatesNothing) {
  EXPECT_EQ(allocations_of_replays({}, false), 0);
  EXPECT_EQ(allocations_of_replays(7, false), 0);
  EXPECT_EQ(allocations_of_replays({}, false, /*timed=*/true), 0);
  EXPECT_EQ(allocations_of_replays({}, true), 3 * 5);  // checks the counter
}

}  // namespace
}  // namespace muo
