#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/stochastic_rounding.h"
#include "kernels/update_squares.h"
#include "optim/bucket_tensors.h"
#include "optim/update_clock.h"

namespace muo::optim {

// The update of one bucket on one rank: the optimizer's state, and the computation of new masters
// from reduced gradients. Functions only enqueue, like those of BucketTensors.
class BucketUpdate {
 public:
  virtual ~BucketUpdate() = default;
  BucketUpdate(const BucketUpdate&) = delete;
  BucketUpdate& operator=(const BucketUpdate&) = delete;

  // The work before commit, which writes no state. If the bucket exchanges, call prepare, exchange,
  // compute and return_updates; else only compute.
  virtual void prepare(Stream& /*update*/) const {}
  virtual void exchange(Stream& /*comm*/) const {}
  virtual void compute(Stream& /*update*/, const UpdateClock& /*clock*/) const {}
  virtual void return_updates(Stream& /*comm*/) const {}
  // Writes new masters and state if StepScalars::commit is set.
  virtual void commit(Stream& update) const = 0;
  // Appends this rank's masters and state, as parts of parameters.
  void append_state(std::vector<StateEntry>& entries) const;

  // The pieces whose squares commit sums (kernels/update_squares.h); `first` counts from 0 for each
  // bucket. Empty on a rank whose elements another rank counts.
  [[nodiscard]] const std::vector<UpdatePiece>& pieces() const { return pieces_; }
  // Sets the output of these sums, (parts, 3) fp64. Without it, commit computes none.
  void sum_squares_into(Tensor squares) { squares_ = squares; }

 protected:
  // Elements committed by one call: elements of one parameter, or `pieces` adjacent ranges of equal
  // length and equal arguments. With stochastic rounding of state, all belong to one parameter,
  // because the noise depends on its name.
  struct CommitRange {
    Range range;
    std::int64_t pieces = 1;
    bool is_padding = false;  // padding of a vocabulary, whose squares are not summed
    std::int64_t first_part = 0;
    double rate = 1;     // factor of Muon's learning rate, which depends on the shape
    int adam_group = 0;  // index of AdamW's group
    std::size_t param = 0;
    std::optional<StochasticRounding> rounding = {};
  };

  // Whether one call can commit both.
  [[nodiscard]] static bool continues(const CommitRange& last, const CommitRange& next);
  BucketUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params, Tensor scalars);
  [[nodiscard]] Tensor state_tensor(const char* suffix, DType dtype, MemoryCategory category,
                                    Arena& arena);  // zero at first, over ranges().state
  [[nodiscard]] Tensor squares_of(const CommitRange& each) const;  // absent: none are summed
  [[nodiscard]] const Bucket& bucket() const { return tensors_.bucket(); }
  [[nodiscard]] const BucketRanges& ranges() const { return tensors_.ranges(); }

  const BucketTensors& tensors_;
  std::span<const ParamSpec> params_;
  Tensor scalars_;
  std::vector<CommitRange> commit_ranges_;

 private:
  // State other than ranges of elements.
  virtual void append_other_state(std::vector<StateEntry>& /*entries*/) const {}

  std::vector<UpdatePiece> pieces_;
  Tensor squares_;
  struct StateTensor {
    const char* suffix;
    Tensor tensor;
  };
  std::vector<StateTensor> state_;
};

}  // namespace muo::optim
