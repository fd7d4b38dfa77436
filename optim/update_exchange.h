#pragma once

#include <cstdint>
#include <vector>

#include "optim/bucket_tensors.h"

namespace muo::optim {

// How Muon's input reaches the ranks that compute, and updates those that commit, where Newton-
// Schulz needs more of a matrix than a rank holds of it (Bucket::exchange, Bucket::returns).
// Functions enqueue and synchronise with nothing, as those of BucketTensors do.
class UpdateExchange {
 public:
  // Ranges of the full space whose updates this rank computes, and whose updates it commits.
  UpdateExchange(const RankContext& rank, const BucketTensors& tensors, std::vector<Range> computed,
                 std::vector<Range> committed, Arena& arena);

  // Over ranges().segment, with padding behind it that is sent as well: to be filled before send.
  [[nodiscard]] Tensor held() const { return held_; }
  // Over ranges().compute: what send brings, and the updates that are computed of it, which may
  // have padding behind them.
  [[nodiscard]] Tensor input() const { return input_; }
  [[nodiscard]] Tensor updates() const { return updates_; }
  // Over ranges().segment: what send_back brings; absent where ranks commit what they compute.
  [[nodiscard]] Tensor returned() const { return returned_; }

  void send(Stream& comm) const;
  // Of updates that are sent back: what no matrix covers must not carry what shared memory held.
  void zero_gaps(Stream& update) const;
  void send_back(Stream& comm) const;

 private:
  [[nodiscard]] const Bucket& bucket() const { return tensors_.bucket(); }
  [[nodiscard]] const BucketRanges& ranges() const { return tensors_.ranges(); }
  // What this rank's segment has of the unit, out of a tensor over the segment.
  [[nodiscard]] Tensor held_slice(const Tensor& tensor, const Unit& unit) const;
  // The unit, out of a tensor over ranges().compute; absent if another rank owns it.
  [[nodiscard]] Tensor owned_slice(const Tensor& tensor, const Unit& unit) const;
  // How many elements of the unit each rank's segment has.
  [[nodiscard]] std::vector<std::int64_t> counts_of(std::size_t unit) const;

  const BucketTensors& tensors_;
  std::vector<Range> computed_, committed_;
  Communicator& communicator_;
  int rank_;
  int world_;
  Tensor held_, input_, updates_, returned_;
  Tensor held_wire_, input_wire_, updates_wire_, returned_wire_;  // absent where fp32 travels
};

}  // namespace muo::optim
