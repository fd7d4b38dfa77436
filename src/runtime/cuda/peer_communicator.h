#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "runtime/comm/communicator.h"
#include "runtime/comm/peer_protocol.h"
#include "runtime/rendezvous.h"

namespace muo {

// What the peer communicator asks of a platform. Both are called by join(), on each rank's thread.
struct PeerPlatform {
  // The number of the GPU that the calling thread drives.
  std::function<int()> gpu = {};
  // Makes the memory of all `gpus`, by rank, accessible to the calling thread's one. Throws
  // InputError if that cannot be.
  std::function<void(int rank, std::span<const int> gpus)> connect = {};
  // How long a rank waits for a peer that neither comes nor fails, 0: for ever;
  // MUO_PEER_DEADLINE_MS overrides.
  std::chrono::milliseconds deadline{0};
  int threads = peer::kMostThreads;  // of a CTA
};

// Collectives by kernels that read and write peers' memory, in one process: no host takes part in a
// replay. Sums as rank_sum.h has them, bit by bit. docs/peer_protocol.md.
//
// Ranks meet at `rendezvous` whenever they enqueue, so all enqueue the same collectives in the same
// order, captured or not; and a rank's collectives follow each other on the device, on one stream
// or ordered by events. Memory that a failed group's collectives touch stays until every rank's
// device is idle.
std::unique_ptr<CommunicatorGroup> make_peer_communicators(int world, Rendezvous& rendezvous,
                                                           PeerPlatform platform);

}  // namespace muo
