#pragma once

#include "optim/bucket_update.h"

namespace muo::optim {

// AdamW for one bucket's elements (docs/spec/optimizer.md, "AdamW"), entirely in commit.
class AdamWUpdate final : public BucketUpdate {
 public:
  AdamWUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params, Tensor scalars,
              Arena& arena);
  void commit(Stream& update) const override;

 private:
  Tensor m_, v_;  // over ranges().state
};

}  // namespace muo::optim
