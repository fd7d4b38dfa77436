#pragma once

#include <utility>
#include <vector>

#include "runtime/memory/arena.h"
#include "support/tensors.h"

namespace muo::test {

// Each tensor has its own memory, initially zero, which lives as long as the arena.
class HeapArena final : public Arena {
 public:
  Tensor tensor(const TensorSpec& spec) override {
    return keep(HostTensor(spec.shape, spec.dtype));
  }
  // Adds a tensor that has already been filled.
  Tensor keep(HostTensor tensor) { return memory_.emplace_back(std::move(tensor)); }

 private:
  std::vector<HostTensor> memory_;
};

}  // namespace muo::test
