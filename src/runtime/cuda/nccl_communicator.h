#pragma once

#include <memory>

#include "runtime/comm/communicator.h"

namespace muo::nccl {

// Collectives of NCCL, a GPU per rank. A rank has two communicators of NCCL: one for what graphs
// hold, one for what runs eagerly, as NCCL would otherwise tie each replay to eager work by events.
//
// Departures from communicator.h:
// - Sums run in the order of NCCL's ring, which is the same in every run (nccl_library.h), in the
//   dtype of the vector: fp32 and fp64. NCCL rounds bf16 at every rank it passes and cannot give
//   fp32, so sums of bf16 are an InputError, which names `--comm peer` and fp32 on the wire.
// - Ranks that enter different collectives are not told: they hang, until they are aborted.
// - bytes_sent() counts what was enqueued: a captured collective once, however often it is
// replayed.
//
// Ranks of several processes meet at `members.processes`, too, when they join, and process 0 makes
// the ids by which NCCL finds them. After that NCCL is alone, and does not notice if a process is
// gone: what waits for it ends by abort().
//
// Throws InputError if NCCL is missing or too old, and its join() if ranks share a GPU, which their
// processes may each call by another number.
std::unique_ptr<CommunicatorGroup> make_nccl_communicators(const CommunicatorMembers& members);

}  // namespace muo::nccl
