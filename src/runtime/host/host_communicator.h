#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/rendezvous.h"

namespace muo {

enum class CollectiveKind : std::uint8_t {
  kReduceScatter,
  kAllGather,
  kAllGatherV,
  kAllReduce,
  kReduce,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
};

// What a rank shows its peers when it enters a collective.
struct CollectivePost {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Tag tag = 0;
  std::int64_t count = 0;  // elements, the same on every rank
  DType dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  int root = -1;
  std::span<const std::int64_t> counts = {};  // of the variable ones
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

// Faults for tests.
struct CommunicatorFaults {
  bool skip_exit_barrier = false;
  std::function<void(int rank)> before_reading = {};
};

// Where the ranks of one communicator meet: peers read each other's buffers in place, between an
// entry and an exit barrier.
struct HostCommunicatorGroup {
  HostCommunicatorGroup(int world, Rendezvous& meeting, CommunicatorFaults faults_ = {})
      : rendezvous(meeting), faults(std::move(faults_)), posts(static_cast<std::size_t>(world)) {}

  Rendezvous& rendezvous;
  const CommunicatorFaults faults;
  std::vector<CollectivePost> posts;  // by rank; a rank's own entry changes only outside barriers
  std::string mispaired;              // why the posts do not match; written by a barrier's leader
};

// `group` outlives the communicator and every graph that holds its collectives, which keep the
// communicator's address.
std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank);

std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous);

}  // namespace muo
