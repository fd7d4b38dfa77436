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

// Shared state of the local ranks of one communicator: they read each other's buffers in place,
// between an entry and an exit barrier. Data of ranks in other processes is received by the last
// rank to arrive, for all.
struct HostCommunicatorGroup {
  // `rendezvous`: of the local ranks.
  HostCommunicatorGroup(const HostWorld& world, Rendezvous& rendezvous_,
                        CommunicatorFaults faults_ = {});
  // For a single process.
  HostCommunicatorGroup(int world, Rendezvous& rendezvous_, CommunicatorFaults faults_ = {});

  const RankRange local;
  Rendezvous& rendezvous;
  const CommunicatorFaults faults;
  std::optional<RemoteRanks> remote;
  // By rank. A rank changes its own entry only outside of barriers; remote entries are written by
  // barriers' leaders.
  std::vector<Collective> posts;
  std::vector<std::int64_t> first;  // by rank: index of the first element in the post's tensors
  std::string mispaired;  // message if the posts do not match; written by a barrier's leader
};

// `group` must outlive the communicator and every graph that contains its collectives. Those graphs
// keep the communicator's address, so it must outlive them.
std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank);

// `rendezvous`: of the local ranks; it and the exchange must outlive the group.
std::unique_ptr<CommunicatorGroup> make_host_communicators(const HostWorld& world,
                                                           Rendezvous& rendezvous);
// For a single process.
std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous);

}  // namespace muo
