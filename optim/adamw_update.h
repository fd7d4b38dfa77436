#pragma once

#include "optim/bucket_update.h"

namespace muo::optim {

// AdamW for the elements of one bucket (docs/spec/optimizer.md, "AdamW"). All of it
// happens in commit.
class AdamWUpdate final : public BucketUpdate {
 public:
  AdamWUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params, Tensor scalars,
              Arena& arena);
  void commit(Stream& update) const override;

 private:
  Tensor m_, v_;  // moments of the elements in ranges().state
};

}  // namespace muo::optim
