#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/comm/process_group.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

class Rendezvous;

// Identifies a collective. All ranks enqueue the same collectives in the same total order, with
// equal tags; the host communicator checks tag, kind, count, dtype and root on entry, and a
// mispaired collective is an Error on every rank.
using Tag = std::uint32_t;

// One rank's end of a group of ranks. Counts are elements, never bytes. Tensors are treated as
// flat: shapes are ignored, `numel` and `dtype` matter. Sums run in rank order, in fp32 for fp32
// and bf16, in fp64 for fp64. Calls enqueue: by the time later work of the stream runs, the
// collective is complete and its inputs may be overwritten. `shard` below has full.numel() / world
// elements.
//
// Aliasing: outputs must not overlap inputs, with three exceptions: the input of all_gather and
// all_gather_v may be the rank's own segment of the output; the output of reduce_scatter may be the
// rank's own segment of the input, if both have one dtype; all_reduce may work in place.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;

  // shard <- sum over ranks of segment rank() of their `full`. The shard's dtype is full's, or
  // fp32.
  virtual void reduce_scatter(Stream& stream, Tag tag, Tensor shard, Tensor full) = 0;
  // full <- every rank's shard, in rank order.
  virtual void all_gather(Stream& stream, Tag tag, Tensor full, Tensor shard) = 0;
  // Like all_gather, but rank r contributes counts[r] elements; full is their concatenation.
  virtual void all_gather_v(Stream& stream, Tag tag, Tensor full, Tensor shard,
                            std::span<const std::int64_t> counts) = 0;
  virtual void all_reduce(Stream& stream, Tag tag, Tensor out, Tensor in) = 0;
  // out is written at `root` only; elsewhere it may be absent. Its dtype is in's, or fp32 for a
  // bf16 in.
  virtual void reduce(Stream& stream, Tag tag, Tensor out, Tensor in, int root) = 0;
  virtual void broadcast(Stream& stream, Tag tag, Tensor values, int root) = 0;
  // full, at `root` only: counts[r] elements from every rank r, in rank order.
  virtual void gather(Stream& stream, Tag tag, Tensor full, Tensor part,
                      std::span<const std::int64_t> counts, int root) = 0;
  // Inverse of gather: part <- segment rank() of root's full.
  virtual void scatter(Stream& stream, Tag tag, Tensor part, Tensor full,
                       std::span<const std::int64_t> counts, int root) = 0;
  // Segment p of out <- segment rank() of rank p's in; all segments are equal in size.
  virtual void all_to_all(Stream& stream, Tag tag, Tensor out, Tensor in) = 0;

  // While muted, a collective is checked and otherwise skipped: no rank waits, no value moves,
  // nothing is sent. For a warm-up that runs everything else.
  virtual void mute(bool muted) = 0;

  // Payload bytes that have crossed this rank's link so far, in the busier direction of each
  // collective; the local share does not count. For B bytes on N ranks: reduce_scatter, all_gather
  // and all_to_all B (N-1)/N, all_reduce twice that, gather and scatter B (N-1)/N at the root and
  // the own part elsewhere, reduce and broadcast B.
  [[nodiscard]] virtual std::int64_t bytes_sent() const = 0;

  // Throws PeerFailed if the group was aborted; device memory then must not be used. Call it after
  // the stream was synchronised.
  virtual void check() const = 0;
};

enum class CommunicatorKind : std::uint8_t { kHost, kPeer, kNccl };  // decision three-communicators

// Members of the group that makes a communicator's ends together.
struct CommunicatorMembers {
  int world = 1;
  RankRange local = {};               // ranks of this process
  Rendezvous& rendezvous;             // of the local ranks' threads
  ProcessGroup* processes = nullptr;  // of the world; null: all ranks are local
};

// Makes the ends of all local ranks together. It must outlive them; they must outlive every graph
// that contains their collectives.
class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;
  // Returns the end of the rank that `device` belongs to. Every rank calls it once, on the thread
  // that drives its device; all return together, or throw PeerFailed once the group is aborted.
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(Device& device) = 0;
  // Releases all that wait for a peer, on a device too. From any thread, any number of times.
  virtual void abort() noexcept = 0;
};

}  // namespace muo
