#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/communicator.h"

namespace muo {

// Collectives by kernels that read and write peers' memory, in one process: no host takes part in a
// replay. Sums as rank_sum.h has them, bit by bit. docs/peer_protocol.md.
//
// Ranks meet at `members.meeting` whenever they enqueue, so all enqueue the same collectives in the
// same order, captured or not; and a rank's collectives follow each other on the device, on one
// stream or ordered by events. Memory that a failed group's collectives touch stays until every
// rank's device is idle.
//
// A rank waits `deadline` for a peer that neither comes nor fails, 0: for ever;
// MUO_PEER_DEADLINE_MS overrides. MUO_PEER_THREADS: of a CTA, peer::kMostThreads without, at least
// as many as ranks. Throws InputError, here or in join(), if the GPUs cannot do it.
std::unique_ptr<CommunicatorGroup> make_peer_communicators(const CommunicatorMembers& members,
                                                           std::chrono::milliseconds deadline);

}  // namespace muo
