#pragma once

#include <vector>

#include "optim/element_ranges.h"
#include "optim/sharding_plan.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/parameter.h"

namespace muo::optim {

// Memory of a bucket's gradients.
struct GradientMemory {
  Lifespan sums = Lifespan::kStep;  // lifespan of the gradients that micro-steps add to
  // Requires that whole gradients live until the last reduction because micro-steps add to them. A
  // rank's part of the sum over ranks may then be in its own segment of the whole gradient, and
  // updates in the other segments.
  bool in_place = false;
  // Set if every micro-step is reduced: memory shared with other buckets, at least as large as
  // this bucket needs.
  Tensor whole = {};   // bytes: the gradient of one micro-step; absent: the bucket has its own
  Tensor wire = {};    // bf16; absent if gradients are sent without conversion
  Tensor addend = {};  // a rank's part of one micro-step's sum over ranks
};

// The parts of a bucket's full space that one rank's tensors cover.
struct BucketRanges {
  BucketRanges(const Bucket& bucket, int rank, int world);

  ElementRanges full;
  ElementRanges segment;  // the rank's segment
  ElementRanges compute;  // where it computes updates
  ElementRanges state;    // where it holds masters and optimizer state
  ElementRanges reduced;  // where it holds the sum of gradients over ranks
};

// One rank's weights, masters and gradients of one bucket, and the bucket's collectives: reduction
// and publication. Each function only enqueues, on the one stream that is passed to it; ShardedStep
// orders the streams.
class BucketTensors {
 public:
  BucketTensors(const RankContext& rank, const Bucket& bucket, Arena& arena,
                const GradientMemory& gradients);

  [[nodiscard]] const Bucket& bucket() const { return bucket_; }
  [[nodiscard]] const BucketRanges& ranges() const { return ranges_; }
  [[nodiscard]] bool computes(const Unit& unit) const;  // this rank computes the unit's update
  // Whether this rank holds some or all of the unit's state.
  [[nodiscard]] bool holds_state(const Unit& unit) const;
  [[nodiscard]] bool writes_state() const;  // this rank saves its state to checkpoints

  // Flat tensors for `unit` and the units after it that continue its parameter.
  [[nodiscard]] Tensor weight(const Unit& unit, std::int64_t count) const;
  [[nodiscard]] Tensor gradient(const Unit& unit, std::int64_t count) const;
  // The sum of gradients over ranks: a range within ranges().reduced, or all that this rank has.
  [[nodiscard]] Tensor reduced(Range range) const;
  [[nodiscard]] Tensor reduced() const { return reduced_; }
  // Memory for `count` fp32 values that is free after the last reduction: the segments of other
  // ranks in the whole gradient, if the reduction is in place. Absent if it is too small.
  [[nodiscard]] Tensor reduced_by_others(std::int64_t count) const;
  // Destinations of commit, within ranges().state: masters, and the replica if it is a separate
  // tensor (else absent). A split master (Bucket::split_master) consists of both: lower halves,
  // which are uint16, and the replica.
  [[nodiscard]] Tensor master(Range range) const;
  [[nodiscard]] Tensor committed_replica(Range range) const;

  void zero_gradient(Stream& stream) const { stream.zero(gradient_); }
  // Call this before reduce(): padding must not contain data of other tensors.
  void zero_padding(Stream& stream) const;
  // Reduces into this rank's part of the sum over ranks. Overwrites that part if this is the
  // `first` reduction in a step, else adds to it.
  void reduce(Stream& comm, Tag tag, bool first) const;
  // Adds the squares of this rank's part of the reduced gradient to `total`, such that each value
  // is counted on one rank only. Records in `found` (kernels/commit.h) the first value that is not
  // finite; `base` is ValueIndexBases::gradients.
  void add_squares(Stream& update, Tensor total, Tensor found, std::int64_t base) const;
  // Sends the committed weights to all ranks.
  void publish(Stream& comm) const;
  // For ReplicaAt::kSharded: `out` <- a block of the committed weights of all ranks. They pass
  // through `wire` if they are sent in another dtype.
  void gather(Stream& comm, Tag tag, Range block, Tensor out, const Tensor& wire) const;
  // Sets this rank's part of the replica from its masters, after the masters were written from
  // outside. Not needed for split masters, which include the replica.
  void refresh_replica(Stream& stream) const;

 private:
  void allocate_gradients(Arena& arena, const GradientMemory& memory);

  const Bucket& bucket_;
  Communicator& communicator_;
  int rank_;
  int world_;
  BucketRanges ranges_;
  // What the replica covers: the full space or, if sharded, this rank's segment. A sharded replica
  // is in the wire's dtype.
  ElementRanges replica_ranges_;
  Tensor weights_;
  Tensor master_;          // covers ranges_.state; absent if the replica is the master
  Tensor weight_wire_;     // full space; absent if weights are sent without conversion
  Tensor gradient_;        // full space
  Tensor gradient_wire_;   // full space; absent if gradients are sent without conversion
  Tensor reduced_;         // covers ranges_.reduced; may be gradient_ itself
  bool in_place_ = false;  // reduced_ is this rank's segment of gradient_
  Tensor addend_;          // covers ranges_.reduced; only if every micro-step is reduced
};

// Returns the tensor to send: `values`, or `wire` if given, into which `values` are
// rounded on `comm`.
Tensor to_wire(Stream& comm, const Tensor& values, const Tensor& wire);

}  // namespace muo::optim
