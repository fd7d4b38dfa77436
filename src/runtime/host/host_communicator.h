#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/collective.h"
#include "runtime/host/remote_ranks.h"
#include "runtime/rendezvous.h"

namespace muo {

// Faults for tests.
struct CommunicatorFaults {
  bool skip_exit_barrier = false;
  std::function<void(int rank)> before_reading = {};
};

// Where the ranks of one communicator meet: local peers read each other's buffers in place, between
// an entry and an exit barrier. What they need of ranks of other processes, the last to arrive
// brings for all.
struct HostCommunicatorGroup {
  // `meeting` is of the local ranks.
  HostCommunicatorGroup(const HostWorld& world, Rendezvous& meeting,
                        CommunicatorFaults faults_ = {});
  // Of one process.
  HostCommunicatorGroup(int world, Rendezvous& meeting, CommunicatorFaults faults_ = {});

  const RankRange local;
  Rendezvous& rendezvous;
  const CommunicatorFaults faults;
  std::optional<RemoteRanks> remote;
  // By rank; a rank's own entry changes only outside barriers, a remote one's by their leaders.
  std::vector<Collective> posts;
  std::vector<std::int64_t> first;  // by rank: the element that the post's tensors begin with
  std::string mispaired;            // why the posts do not match; written by a barrier's leader
};

// `group` outlives the communicator and every graph that holds its collectives, which keep the
// communicator's address.
std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank);

// `rendezvous` is of the local ranks; it and the exchange outlive the group.
std::unique_ptr<CommunicatorGroup> make_host_communicators(const HostWorld& world,
                                                           Rendezvous& rendezvous);
// Of one process.
std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous);

}  // namespace muo
