#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/stochastic_rounding.h"
#include "kernels/update_squares.h"
#include "optim/bucket_tensors.h"
#include "optim/update_clock.h"

namespace muo::optim {

// The update of one bucket on one rank: state of the optimizer, and how it makes new masters of
// reduced gradients. Functions enqueue and synchronise with nothing, as those of BucketTensors do.
class BucketUpdate {
 public:
  virtual ~BucketUpdate() = default;
  BucketUpdate(const BucketUpdate&) = delete;
  BucketUpdate& operator=(const BucketUpdate&) = delete;

  // What precedes commit, and writes no state. Where the bucket exchanges: prepare, exchange,
  // compute and return_updates; else compute.
  virtual void prepare(Stream& /*update*/) const {}
  virtual void exchange(Stream& /*comm*/) const {}
  virtual void compute(Stream& /*update*/, const UpdateClock& /*clock*/) const {}
  virtual void return_updates(Stream& /*comm*/) const {}
  // New masters and state, if StepScalars::commit.
  virtual void commit(Stream& update) const = 0;
  // Masters and state of this rank, as parts of parameters.
  void append_state(std::vector<StateEntry>& entries) const;

  // Whose squares commit sums where (kernels/update_squares.h): `first` counts from 0 for each
  // bucket. None on a rank that holds what another one counts.
  [[nodiscard]] const std::vector<UpdatePiece>& pieces() const { return pieces_; }
  // Where, (parts, 3) fp64; without, commit sums nothing.
  void sum_squares_into(Tensor squares) { squares_ = squares; }

 protected:
  // Of one parameter, or `pieces` of one length in a row that are alike to the kernel: committed by
  // one call. Where state is rounded stochastically, of one: its noise has the parameter's name.
  struct CommitRange {
    Range range;
    std::int64_t pieces = 1;
    bool is_padding = false;  // of a vocabulary: its squares are not summed
    std::int64_t first_part = 0;
    double rate = 1;     // Muon's, by shape
    int adam_group = 0;  // AdamW's
    std::size_t param = 0;
    std::optional<StochasticRounding> rounding = {};
  };

  // Whether one call can commit both.
  [[nodiscard]] static bool continues(const CommitRange& last, const CommitRange& next);
  BucketUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params, Tensor scalars);
  [[nodiscard]] Tensor state_tensor(const char* suffix, DType dtype, MemoryCategory category,
                                    Arena& arena);  // zero at first, over ranges().state
  [[nodiscard]] Tensor squares_of(const CommitRange& each) const;  // absent: not summed
  [[nodiscard]] const Bucket& bucket() const { return tensors_.bucket(); }
  [[nodiscard]] const BucketRanges& ranges() const { return tensors_.ranges(); }

  const BucketTensors& tensors_;
  std::span<const ParamSpec> params_;
  Tensor scalars_;
  std::vector<CommitRange> commit_ranges_;

 private:
  // State that is no range of elements.
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
