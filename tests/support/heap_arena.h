#pragma once

#include <utility>
#include <vector>

#include "runtime/memory/arena.h"
#include "support/tensors.h"

namespace muo::test {

// Each tensor in memory of its own, zero at first, as long as this lives.
class HeapArena final : public Arena {
 public:
  Tensor tensor(const TensorSpec& spec) override {
    return keep(HostTensor(spec.shape, spec.dtype));
  }
  // A tensor that is filled already.
  Tensor keep(HostTensor tensor) { return memory_.emplace_back(std::move(tensor)); }

 private:
  std::vector<HostTensor> memory_;
};

}  // namespace muo::test
