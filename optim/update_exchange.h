#pragma once

#include <cstdint>
#include <vector>

#include "optim/bucket_tensors.h"

namespace muo::optim {

// Exchange of Muon's input with the ranks that compute, and of updates with the ranks that commit,
// if Newton-Schulz needs more of a matrix than a rank holds (Bucket::exchange, Bucket::returns).
// Functions only enqueue, like those of BucketTensors.
class UpdateExchange {
 public:
  // `computed` and `committed` are the ranges of the full space whose updates this rank computes,
  // and commits, respectively.
  UpdateExchange(const RankContext& rank, const BucketTensors& tensors, std::vector<Range> computed,
                 std::vector<Range> committed, Arena& arena);

  // Covers ranges().segment, followed by padding that is sent as well. Fill it before send().
  [[nodiscard]] Tensor held() const { return held_; }
  // Covers ranges().compute, possibly followed by padding: first the result of send(), then the
  // updates computed from it.
  [[nodiscard]] Tensor input() const { return input_; }
  [[nodiscard]] Tensor updates() const { return updates_; }
  // Covers ranges().segment: the result of send_back(); absent if ranks commit what they compute.
  [[nodiscard]] Tensor returned() const { return returned_; }

  void send(Stream& comm) const;
  // Zeroes the elements of returned updates that no matrix covers, which must not contain data
  // of other tensors.
  void zero_gaps(Stream& update) const;
  void send_back(Stream& comm) const;

 private:
  [[nodiscard]] const Bucket& bucket() const { return tensors_.bucket(); }
  [[nodiscard]] const BucketRanges& ranges() const { return tensors_.ranges(); }
  // The part of the unit in this rank's segment, from a tensor over the segment.
  [[nodiscard]] Tensor held_slice(const Tensor& tensor, const Unit& unit) const;
  // The unit, from a tensor over ranges().compute; absent if another rank owns it.
  [[nodiscard]] Tensor owned_slice(const Tensor& tensor, const Unit& unit) const;
  // Number of the unit's elements in each rank's segment.
  [[nodiscard]] std::vector<std::int64_t> counts_of(std::size_t unit) const;

  const BucketTensors& tensors_;
  std::vector<Range> computed_, committed_;
  Communicator& communicator_;
  int rank_;
  int world_;
  Tensor held_, input_, updates_, returned_;
  Tensor held_wire_, input_wire_, updates_wire_, returned_wire_;  // absent if the wire is fp32
};

}  // namespace muo::optim
