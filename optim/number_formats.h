#pragma once

#include "base/dtype.h"

namespace muo {

// Where the optimizer's numbers may have fewer bits than fp32; fp32 or bf16 each. A choice of speed
// and memory, not of the model: a resumed run may make another.
struct NumberFormats {
  DType gradient_wire = DType::kF32;    // gradients on their way to be reduced
  DType weight_wire = DType::kF32;      // updated weights on their way to every rank
  DType embedding_state = DType::kF32;  // AdamW's moments of token and value embeddings
};

}  // namespace muo
