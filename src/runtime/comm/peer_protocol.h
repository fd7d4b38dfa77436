#pragma once

// The protocol of the peer communicator: the words that ranks share, and the order in which a CTA
// signals, waits and moves data. docs/peer_protocol.md says why it is safe. The kernel runs the
// templates below; the exhaustive test runs the same text to learn the steps that it checks.

#include <cstdint>

#ifdef __CUDACC__
#  define MUO_PEER_FUNCTION __device__ __forceinline__
#else
#  define MUO_PEER_FUNCTION inline
#endif

namespace muo::peer {

inline constexpr int kMostRanks = 16;
inline constexpr int kMostCtas = 8;       // of a rank: the rest of the GPU computes
inline constexpr int kMostThreads = 512;  // of a CTA; at least kMostRanks

// Counts barriers from 1 on: a day of a million a second would take half a million years.
using Epoch = std::uint64_t;
// In place of an epoch: the writer has left and will not come.
inline constexpr Epoch kLeft = ~Epoch{0};

// A rank's words in its own device memory, zero at first. CTA c of any rank deals with CTAs c of
// its peers only.
struct alignas(128) Mailbox {
  // [c][p]: the last barrier that CTA c of rank p has reached. Written by that CTA, by
  // store-release; read by the owner's CTA c, by load-acquire.
  Epoch arrived[kMostCtas][kMostRanks];
  // The rest is the owner's own. Kernels of a rank follow each other, so each CTA's words pass from
  // kernel to kernel as any memory does.
  Epoch epoch[kMostCtas];         // the last barrier that CTA c has passed
  std::uint32_t busy[kMostCtas];  // CTA c is in a collective
  std::uint32_t failed;           // a CTA of this rank has left: the others follow
  std::uint64_t sent;             // bytes
};

enum class Reason : std::uint32_t { kNone, kAborted, kDeadline, kPeerLeft, kTwoAtOnce };

// A rank's words in pinned host memory.
struct alignas(128) Control {
  std::uint32_t abort;  // written by the host
  // Why this rank left, written once by the kernel, `reason` last.
  std::uint32_t reason, kind, tag;
  std::int32_t peer;
  std::uint64_t sent;
};

// Every rank's CTA reaches the barrier `epoch`, or this is false. What a CTA did before it is seen
// by its peers' CTAs after it.
template <class Cta>
MUO_PEER_FUNCTION bool meet(Cta& cta, Epoch epoch) {
  cta.sync();
  cta.signal(epoch);
  return cta.wait(epoch);
}

// One CTA's part in a collective. Barriers:
//   entry   all peers' kernels run: their inputs are written, their outputs are no longer read
//   middle  of all_reduce: the sums that are about to be copied are written
//   exit    nobody reads or writes this rank's memory any more
// After a false, memory may hold anything, and no later collective of this rank starts.
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
