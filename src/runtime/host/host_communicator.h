#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/collective.h"
#include "runtime/rendezvous.h"

namespace muo {

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
  std::vector<Collective> posts;  // by rank; a rank's own entry changes only outside barriers
  std::string mispaired;          // why the posts do not match; written by a barrier's leader
};

// `group` outlives the communicator and every graph that holds its collectives, which keep the
// communicator's address.
std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank);

std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous);
// Of one process.
std::unique_ptr<CommunicatorGroup> make_host_communicators(const CommunicatorMembers& members);

}  // namespace muo
