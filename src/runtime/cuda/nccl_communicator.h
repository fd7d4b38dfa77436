#pragma once

#include <memory>

#include "runtime/comm/communicator.h"

namespace muo::nccl {

// Collectives of NCCL. A rank has two NCCL communicators: one for
// collectives in graphs, one for eager ones, as NCCL would otherwise order each replay after eager
// work by events.
//
// Departures from communicator.h:
// - Sums of fp32 and fp64 run in the order of NCCL's ring, which is the same in every run
// (nccl_library.h); sums of bf16 are those of communicator.h (nccl_bf16.h).
// - Ranks that enter different collectives get no error: they hang until they are aborted.
// - bytes_sent() counts at enqueue: a captured collective counts once, however often it is
// replayed.
//
// With several processes, ranks also synchronise through `members.processes` when they join, and
// process 0 creates the ids by which NCCL connects them. NCCL does not detect that a process is
// gone: what waits for it ends by abort().
//
// Throws InputError if NCCL is missing or too old; join() throws it if ranks share a GPU, detected
// across processes by UUID, unless may_share_gpus().
std::unique_ptr<CommunicatorGroup> make_nccl_communicators(const CommunicatorMembers& members);

}  // namespace muo::nccl
