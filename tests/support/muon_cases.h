#pragma once

#include <vector>

#include "kernels/step_scalars.h"
#include "support/tensors.h"

namespace muo::test {

struct MuonScalars {
  HostTensor tensor{{static_cast<std::int64_t>(sizeof(StepScalars))}, DType::kBytes};
  explicit MuonScalars(int commit = 1) {
    StepScalars s;
    s.commit = commit;
    s.muon_momentum = s.muon_look_ahead = 0.9F;
    s.muon_beta2 = 0.95F;
    s.matrix_lr = 0.02;
    s.muon_weight_decay = 0.25F;
    *tensor.tensor().as_struct<StepScalars>() = s;
  }
};

// Shapes: tall, square, wide, gates, one row, one column, and lengths that are not
// multiples of a vector.
inline const std::vector<Shape>& muon_shapes() {
  static const std::vector<Shape> all = {{2, 40, 24}, {1, 33, 33}, {3, 24, 40}, {2, 6, 12},
                                         {1, 1, 70},  {1, 70, 1},  {1, 17, 67}};
  return all;
}

}  // namespace muo::test
