#pragma once

// The protocol of the peer communicator: the words that ranks share, and the order in which a CTA
// signals, waits and moves data. docs/peer_protocol.md explains why it is safe. The kernel
// instantiates the templates below, and so does the exhaustive test, to obtain the steps that it
// checks.

#include <cstdint>

#ifdef __CUDACC__
#  define MUO_PEER_FUNCTION __device__ __forceinline__
#else
#  define MUO_PEER_FUNCTION inline
#endif

namespace muo::peer {

inline constexpr int kMaxRanks = 16;
inline constexpr int kMaxCtas = 8;       // per rank; the rest of the GPU computes
inline constexpr int kMaxThreads = 512;  // per CTA; at least kMaxRanks

// Counts barriers, from 1. At a million per second it overflows after half a million years.
using Epoch = std::uint64_t;
// Signalled in place of an epoch: the writer has left and will reach no further barrier.
inline constexpr Epoch kLeft = ~Epoch{0};

// A rank's words in its own device memory, zero at first. CTA c of a rank exchanges signals with
// CTAs c of its peers only.
struct alignas(128) Mailbox {
  // [c][p]: the last barrier that CTA c of rank p has reached. Written by that CTA, by
  // store-release; read by the owner's CTA c, by load-acquire.
  Epoch arrived[kMaxCtas][kMaxRanks];
  // The rest is accessed by the owner only. Kernels of a rank run one after another, so each CTA's
  // words pass from kernel to kernel like any memory.
  Epoch epoch[kMaxCtas];         // the last barrier that CTA c has passed
  std::uint32_t busy[kMaxCtas];  // CTA c is in a collective
  std::uint32_t failed;          // a CTA of this rank has left; the others will leave too
  std::uint64_t sent;            // bytes
};

enum class Reason : std::uint32_t { kNone, kAborted, kDeadline, kPeerLeft, kTwoAtOnce };

// A rank's words in pinned host memory.
struct alignas(128) Control {
  std::uint32_t abort;  // written by the host
  // Reason why this rank left, written once by the kernel, `reason` last.
  std::uint32_t reason, kind, tag;
  std::int32_t peer;
  std::uint64_t sent;
};

// Waits until every rank's CTA has reached the barrier `epoch`; false if one has left. Writes of a
// CTA before the barrier are visible to its peers' CTAs after it.
template <class Cta>
MUO_PEER_FUNCTION bool meet(Cta& cta, Epoch epoch) {
  cta.sync();
  cta.signal(epoch);
  return cta.wait(epoch);
}

// One CTA's part in a collective. Barriers:
//   entry   all peers' kernels run: their inputs are written, their outputs no longer read
//   middle  all_reduce only: the sums to be copied are written
//   exit    no peer reads or writes this rank's memory any more
// After it returned false, memory may hold anything, and no later collective of this rank starts.
template <class Cta>
MUO_PEER_FUNCTION bool take_part(Cta& cta) {
  Epoch epoch = cta.epoch();
  if (!cta.start()) return false;
  if (!meet(cta, ++epoch)) return false;
  cta.sum();
  if (cta.has_middle() && !meet(cta, ++epoch)) return false;
  cta.copy();
  if (!meet(cta, ++epoch)) return false;
  cta.finish(epoch);
  return true;
}

}  // namespace muo::peer
