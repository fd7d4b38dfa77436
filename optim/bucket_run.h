#pragma once

#include <span>
#include <vector>

#include "optim/element_ranges.h"
#include "optim/newton_schulz.h"
#include "optim/nonfinite_value.h"
#include "optim/sharding_plan.h"
#include "optim/update_clock.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/parameter.h"

namespace muo {

// Where a bucket's gradients lie.
struct GradientMemory {
  Lifespan sums = Lifespan::kStep;  // of what micro-steps add to
  // Accumulate::kSharded: shared with other buckets, and at least as large as this one needs.
  Tensor whole = {};   // the gradient of one micro-step; absent: the bucket's own, which adds up
  Tensor wire = {};    // of the type in which gradients travel; may be absent where that is fp32
  Tensor addend = {};  // a rank's part of the sum over ranks, of one micro-step
};

// One rank's tensors of one bucket, and the calls that its table asks for. Each function enqueues
// on the one stream it is given and synchronises with nothing: ShardedStep orders the streams.
class BucketRun {
 public:
  BucketRun(const RankContext& rank, const Bucket& bucket, const OptimizerVersion& version,
            const NewtonSchulzForm& form, std::span<const ParamSpec> params, Arena& arena,
            const GradientMemory& gradients, Tensor scalars, Tensor found, ValueIndexBases bases);

  // Flat, of `unit` and the units after it that continue its parameter.
  [[nodiscard]] Tensor weight(const Unit& unit, std::int64_t count) const;
  [[nodiscard]] Tensor gradient(const Unit& unit, std::int64_t count) const;

  // Before reduce: padding must not carry what shared memory held.
  void zero_padding(Stream& stream) const;
  // Into this rank's part of the sum over ranks: the first time in a step, or added to it.
  void reduce(Stream& comm, Tag tag, bool first) const;
  // Adds this rank's part of the squared reduced gradient, counted on one rank only, to `total`.
  void add_squares(Stream& update, Tensor total) const;
  // Nesterov input of this rank's elements, where the plan exchanges it.
  void prepare(Stream& update) const;
  void exchange(Stream& comm) const;
  void compute(Stream& update, const UpdateClock& clock) const;  // updates, touching no state
  void return_updates(Stream& comm) const;
  void commit(Stream& update) const;  // if scalars.commit
  void publish(Stream& comm) const;

  // Makes this rank's part of the replica equal to its masters, which someone else wrote.
  void refresh_replica(Stream& stream) const;

  [[nodiscard]] const Bucket& bucket() const { return bucket_; }
  void append_state(std::vector<StateEntry>& entries) const;

 private:
  // Adjacent units of one shape, for which this rank makes the calls around Newton-Schulz.
  struct Batch {
    std::size_t first_unit = 0;
    std::int64_t count = 0;
    Range range;          // of the bucket's full space
    Tensor u;             // (k, R, C)
    Tensor row_norms;     // (k, R)
    Tensor variance;      // (k, long); absent in a version without it, as the next is
    Tensor new_variance;  // (k, long)
  };
  // Where a batch goes through Newton-Schulz: from matrix `begin` of an iteration on, transposed if
  // that merges its shape with the other orientation of it.
  struct Member {
    std::size_t batch = 0;
    std::int64_t begin = 0;
    bool transposed = false;
  };
  struct Iteration {
    std::vector<Member> members;
    NewtonSchulz newton_schulz;
  };
  // A run of elements that this rank commits with one call.
  struct Piece {
    Range range;
    double rate = 1;     // Muon
    int adam_group = 0;  // AdamW
  };

  [[nodiscard]] bool is_local(const Unit& unit) const;  // computed here
  void allocate_gradients(Arena& arena, const GradientMemory& memory);
  void allocate_muon(Arena& arena);
  void allocate_exchange(Arena& arena);
  void add_batch(std::size_t first, std::size_t last, Arena& arena);
  void add_iterations(Arena& arena);
  void fill_input(Stream& update, const Iteration& iteration, const Member& member) const;
  void take_result(Stream& update, const Iteration& iteration, const Member& member) const;
  void find_pieces();
  void append_variances(std::vector<StateEntry>& entries) const;
  // Of u, before it is sent: they must not carry what shared memory held.
  void zero_gaps(Stream& stream) const;
  // What this rank's segment has of the unit, out of a tensor over it.
  [[nodiscard]] Tensor held_part(const Tensor& tensor, const Unit& unit) const;
  // What each rank's segment has of the unit.
  [[nodiscard]] std::vector<std::int64_t> counts_of(std::size_t unit) const;
  // What is sent of `values`: themselves or, rounded to the wire's type on `comm`, `wire`.
  static Tensor sent(Stream& comm, const Tensor& values, const Tensor& wire);

  const Bucket& bucket_;
  const OptimizerVersion& version_;
  const NewtonSchulzForm& form_;
  std::span<const ParamSpec> params_;
  Communicator& communicator_;
  int rank_;
  int world_;
  Tensor scalars_;
  Tensor found_;  // the first value that is not finite (kernels/commit.h)
  ValueIndexBases bases_;
  ElementRanges full_;
  ElementRanges segment_;  // this rank's
  ElementRanges state_;    // where this rank holds state and masters
  ElementRanges compute_;  // where it computes

  // What commit writes: masters, and the replica where that is another tensor.
  [[nodiscard]] Tensor master(Range range) const;
  [[nodiscard]] Tensor committed_replica(Range range) const;

  Tensor weights_;        // full space: the replica
  Tensor master_;         // over state_; absent where the master is this rank's part of the replica
  Tensor weight_wire_;    // full space; absent where weights travel as they are
  Tensor gradient_;       // full space
  Tensor gradient_wire_;  // full space; absent where gradients travel in fp32
  Tensor reduced_;        // over reduced_ranges_; gradient_ itself where no other tensor is needed
  Tensor addend_;         // over reduced_ranges_; absent unless every micro-step is reduced
  ElementRanges reduced_ranges_;
  Tensor momentum_;  // Muon; over state_
  Tensor adam_m_;    // AdamW; over state_
  Tensor adam_v_;    // AdamW; over state_
  Tensor u_;         // Muon; over compute_
  // Where the plan exchanges; the wires are absent where fp32 travels. An all-to-all needs room for
  // a block per rank, which may be more than the spaces have.
  Tensor nesterov_, nesterov_wire_;    // over segment_
  Tensor exchanged_, exchanged_wire_;  // over compute_
  // Where updates return from their owners.
  Tensor u_wire_;                    // over compute_
  Tensor returned_, returned_wire_;  // over segment_
  std::vector<Batch> batches_;
  std::vector<Iteration> iterations_;
  std::vector<Piece> pieces_;
};

}  // namespace muo
