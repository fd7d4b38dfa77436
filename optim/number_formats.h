#pragma once

#include "base/dtype.h"

namespace muo::optim {

// Where the optimizer's numbers may have fewer bits than fp32; fp32 or bf16 each. A choice of speed
// and memory, not of the model: a resumed run may make another.
struct NumberFormats {
  // Gradients of bf16 weights, from backward to their reduction, which then sends them as they are.
  DType gradients = DType::kF32;
  DType gradient_wire = DType::kF32;  // gradients on their way to be reduced
  DType weight_wire = DType::kF32;    // updated weights on their way to every rank
  // State of bf16 is rounded stochastically, but for embedding_state, which is nanochat's.
  DType momentum_state = DType::kF32;   // Muon's momentum
  DType adam_state = DType::kF32;       // AdamW's moments, but for those of what mixes and gates
  DType embedding_state = DType::kF32;  // the same of embeddings, to nearest; not with adam_state
  // Masters of bf16 weights: 16 bits each beside the replica (base/split_float.h), or fp32.
  bool split_masters = false;
};

}  // namespace muo::optim
