#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/communicator.h"

namespace muo {

// Collectives by kernels that read and write peers' memory, in one process: no host takes part in a
// replay. Sums agree with rank_sum.h bit by bit. See docs/peer_protocol.md.
//
// Every enqueue, eager or captured, is a barrier of the ranks' threads at `members.rendezvous`, so
// all enqueue the same collectives in the same order. A rank's collectives must run one after
// another on the device: on one stream, or ordered by events. Memory touched by a failed group's
// collectives must stay allocated until every rank's device is idle.
//
// A rank waits `deadline` for a peer that neither arrives nor fails (0: for ever);
// MUO_PEER_DEADLINE_MS overrides it. MUO_PEER_THREADS sets the threads per CTA, at least as many as
// ranks (default peer::kMaxThreads). Throws InputError, here or in join(), if the GPUs do not
// support it.
std::unique_ptr<CommunicatorGroup> make_peer_communicators(const CommunicatorMembers& members,
                                                           std::chrono::milliseconds deadline);

}  // namespace muo
