#pragma once

#include <vector>

#include "optim/element_ranges.h"
#include "optim/sharding_plan.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/parameter.h"

namespace muo::optim {

// Where a bucket's gradients lie.
struct GradientMemory {
  Lifespan sums = Lifespan::kStep;  // of what micro-steps add to
  // Whole gradients live until the last reduction anyway, as micro-steps add to them: a rank's part
  // of the sum over ranks may then lie in its own segment of them, and updates in the others.
  bool in_place = false;
  // Where every micro-step is reduced: shared with other buckets, and at least as large as this one
  // needs.
  Tensor whole = {};   // bytes, the gradient of one micro-step; absent: the bucket's own
  Tensor wire = {};    // bf16; may be absent where gradients travel as they are
  Tensor addend = {};  // a rank's part of the sum over ranks, of one micro-step
};

// What of a bucket's full space one rank's tensors cover.
struct BucketRanges {
  BucketRanges(const Bucket& bucket, int rank, int world);

  ElementRanges full;
  ElementRanges segment;  // the rank's
  ElementRanges compute;  // where it computes updates
  ElementRanges state;    // where it holds masters and optimizer state
  ElementRanges reduced;  // where it holds the sum of gradients over ranks
};

// One rank's weights, masters and gradients of one bucket, and the collectives that its table asks
// for: reduction and publication. Each function enqueues on the one stream it is given and
// synchronises with nothing: ShardedStep orders the streams.
class BucketTensors {
 public:
  BucketTensors(const RankContext& rank, const Bucket& bucket, Arena& arena,
                const GradientMemory& gradients);

  [[nodiscard]] const Bucket& bucket() const { return bucket_; }
  [[nodiscard]] const BucketRanges& ranges() const { return ranges_; }
  [[nodiscard]] bool computes(const Unit& unit) const;     // this rank its update
  [[nodiscard]] bool holds_state(const Unit& unit) const;  // this rank, of some of it or all
  [[nodiscard]] bool writes_state() const;                 // to checkpoints: no other rank does

  // Flat, of `unit` and the units after it that continue its parameter.
  [[nodiscard]] Tensor weight(const Unit& unit, std::int64_t count) const;
  [[nodiscard]] Tensor gradient(const Unit& unit, std::int64_t count) const;
  // The sum of gradients over ranks, within ranges().reduced; all that this rank has of it.
  [[nodiscard]] Tensor reduced(Range range) const;
  [[nodiscard]] Tensor reduced() const { return reduced_; }
  // Memory for `count` fp32 of what follows the last reduction: of the other ranks' segments of the
  // whole gradient, where the reduction works in place. Absent where there is too little of it.
  [[nodiscard]] Tensor reduced_by_others(std::int64_t count) const;
  // What commit writes, within ranges().state: masters, and the replica where that is another
  // tensor (else absent). Split masters (Bucket::split_master) are both together: lower halves,
  // uint16, and the replica.
  [[nodiscard]] Tensor master(Range range) const;
  [[nodiscard]] Tensor committed_replica(Range range) const;

  // Before reduce: padding must not carry what shared memory held.
  void zero_padding(Stream& stream) const;
  // Into this rank's part of the sum over ranks: the first time in a step, or added to it.
  void reduce(Stream& comm, Tag tag, bool first) const;
  // Adds the squares of this rank's part of the reduced gradient, each of which one rank counts, to
  // `total`, and notes in `found` (kernels/commit.h) the first value that is not finite; `base` is
  // ValueIndexBases::gradients.
  void add_squares(Stream& update, Tensor total, Tensor found, std::int64_t base) const;
  // Sends the committed weights to all ranks.
  void publish(Stream& comm) const;
  // ReplicaAt::kSharded: `out` <- a block of the committed weights, of all ranks, through `wire`
  // where they travel as another type.
  void gather(Stream& comm, Tag tag, Range block, Tensor out, const Tensor& wire) const;
  // Makes this rank's part of the replica equal to its masters, which someone else wrote. Whoever
  // writes split masters has written it.
  void refresh_replica(Stream& stream) const;

 private:
  void allocate_gradients(Arena& arena, const GradientMemory& memory);

  const Bucket& bucket_;
  Communicator& communicator_;
  int rank_;
  int world_;
  BucketRanges ranges_;
  // The replica: full space or, sharded, this rank's segment, which then is as weights travel.
  ElementRanges replica_ranges_;
  Tensor weights_;
  Tensor master_;          // over state; absent where the master is this rank's part of the replica
  Tensor weight_wire_;     // full space; absent where weights travel as they are held
  Tensor gradient_;        // full space
  Tensor gradient_wire_;   // full space; absent where gradients travel as they are
  Tensor reduced_;         // over ranges_.reduced; gradient_ itself where no other is needed
  bool in_place_ = false;  // reduced_ is this rank's segment of gradient_
  Tensor addend_;          // over ranges_.reduced; absent unless every micro-step is reduced
};

// What is sent of `values`: themselves or, rounded to the wire's type on `comm`, `wire`.
Tensor to_wire(Stream& comm, const Tensor& values, const Tensor& wire);

}  // namespace muo::optim
