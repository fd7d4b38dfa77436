#pragma once

#include <optional>
#include <vector>

#include "optim/bucket_update.h"
#include "optim/newton_schulz.h"
#include "optim/update_exchange.h"

namespace muo::optim {

// Muon for the matrices of one bucket (docs/spec/optimizer.md): Nesterov momentum, Newton-Schulz on
// the ranks that compute, and scaling; with the plan's exchange if a rank holds less of a matrix
// than it computes.
class MuonUpdate final : public BucketUpdate {
 public:
  // `found` (kernels/commit.h) receives the first value of an update that is not finite; `base` is
  // ValueIndexBases::updates.
  MuonUpdate(const RankContext& rank, const BucketTensors& tensors, const ShardingPlan& plan,
             std::span<const ParamSpec> params, Arena& arena, Tensor scalars, Tensor found,
             std::int64_t base);

  void prepare(Stream& update) const override;  // Nesterov input of this rank's elements
  void exchange(Stream& comm) const override;
  void compute(Stream& update, const UpdateClock& clock) const override;
  void return_updates(Stream& comm) const override;
  void commit(Stream& update) const override;

 private:
  // Adjacent matrices of the same shape, which the kernels before and after Newton-Schulz
  // process together.
  struct Stack {
    std::size_t first_unit = 0;
    std::int64_t count = 0;
    Range range;               // within the bucket's full space
    Tensor u = {};             // (k, R, C)
    Tensor row_norms = {};     // (k, R)
    Tensor variance = {};      // (k, long); absent in versions without it
    Tensor new_variance = {};  // (k, long)
  };
  // A stack's place in a Newton-Schulz iteration. `begin` is its first matrix; it is transposed if
  // that merges its shape with the other orientation.
  struct Member {
    std::size_t stack = 0;
    std::int64_t begin = 0;
    bool transposed = false;
  };
  struct Iteration {
    std::vector<Member> members;
    NewtonSchulz newton_schulz;
  };

  void find_stacks();
  void allocate(Stack& stack, Arena& arena);
  void add_iterations(const NewtonSchulzForm& form, Arena& arena);
  void fill_input(Stream& update, const Iteration& iteration, const Member& member) const;
  void take_result(Stream& update, const Iteration& iteration, const Member& member) const;
  void append_other_state(std::vector<StateEntry>& entries) const override;

  const OptimizerVersion& version_;
  std::span<const Quintic> iteration_;
  int rank_;
  Tensor found_;
  std::int64_t base_;
  Tensor momentum_;                         // covers ranges().state
  std::optional<UpdateExchange> exchange_;  // if the plan exchanges
  Tensor u_;                                // covers ranges().compute
  std::vector<Stack> stacks_;
  std::vector<Iteration> iterations_;
};

}  // namespace muo::optim
