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

// Names a collective. All ranks enqueue the same collectives in the same total order, with equal
// tags; the host communicator checks tag, kind, count, dtype and root on entry, and a mispaired
// collective is an Error on every rank.
using Tag = std::uint32_t;

// One rank's end of a group of peers. Counts are elements, never bytes. Tensors are flat here:
// shapes are ignored, `numel` and `dtype` count. Sums run in rank order, in fp32 for fp32 and bf16,
// in fp64 for fp64. Enqueued work is complete, and its inputs may be overwritten, when the
// stream's later work runs. `shard` below has full.numel() / world elements.
//
// Aliasing: outputs do not overlap inputs, with three exceptions: all_gather's and all_gather_v's
// input may be the rank's own segment of the output, reduce_scatter's output that of the input,
// where both have one dtype, and all_reduce may work in place.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;

  // shard <- sum over ranks of segment rank() of their `full`. dtype of shard: full's, or fp32.
  virtual void reduce_scatter(Stream& stream, Tag tag, Tensor shard, Tensor full) = 0;
  // full <- every rank's shard, in rank order.
  virtual void all_gather(Stream& stream, Tag tag, Tensor full, Tensor shard) = 0;
  // As all_gather, where rank r contributes counts[r] elements; full is their concatenation.
  virtual void all_gather_v(Stream& stream, Tag tag, Tensor full, Tensor shard,
                            std::span<const std::int64_t> counts) = 0;
  virtual void all_reduce(Stream& stream, Tag tag, Tensor out, Tensor in) = 0;
  // out is written at `root` only; elsewhere it may be absent. dtype of out: in's, or fp32 for a
  // bf16 in.
  virtual void reduce(Stream& stream, Tag tag, Tensor out, Tensor in, int root) = 0;
  virtual void broadcast(Stream& stream, Tag tag, Tensor values, int root) = 0;
  // full, at `root` only, is counts[r] elements from every rank r, in rank order.
  virtual void gather(Stream& stream, Tag tag, Tensor full, Tensor part,
                      std::span<const std::int64_t> counts, int root) = 0;
  // The reverse: part <- segment rank() of root's full.
  virtual void scatter(Stream& stream, Tag tag, Tensor part, Tensor full,
                       std::span<const std::int64_t> counts, int root) = 0;
  // Segment p of out <- segment rank() of rank p's in; equal segments.
  virtual void all_to_all(Stream& stream, Tag tag, Tensor out, Tensor in) = 0;

  // While muted, a collective is checked and nothing else: nobody waits, no value moves, nothing is
  // sent. For a warm-up that runs everything else.
  virtual void mute(bool muted) = 0;

  // Payload that crossed this rank's link so far, in the busier direction of each collective; the
  // local share never does. Of B bytes on N ranks: reduce_scatter, all_gather and all_to_all
  // B (N-1)/N, all_reduce twice that, gather and scatter B (N-1)/N at the root and the own part
  // elsewhere, reduce and broadcast B.
  [[nodiscard]] virtual std::int64_t bytes_sent() const = 0;

  // Throws PeerFailed if the group was aborted: what device memory holds since is not to be used.
  // Called after the stream was synchronised.
  virtual void check() const = 0;
};

enum class CommunicatorKind : std::uint8_t { kHost, kPeer, kNccl };  // decision three-communicators

// Who makes the ends of a communicator together.
struct CommunicatorMembers {
  int world = 1;
  RankRange local = {};               // ranks of this process
  Rendezvous& meeting;                // of their threads
  ProcessGroup* processes = nullptr;  // that hold all ranks; null: this one does
};

// The ends of all local ranks, which are made together. It outlives them; they outlive every graph
// that holds their collectives.
class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;
  // The end of the rank that `device` belongs to. Every rank calls it once, on the thread that
  // drives its device; all return together or, once the group is aborted, throw PeerFailed.
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(Device& device) = 0;
  // Releases whoever waits for a peer, on a device too. From any thread, any number of times.
  virtual void abort() noexcept = 0;
};

}  // namespace muo
