#pragma once

#include "base/dtype.h"

namespace muo::optim {

// Number formats of the optimizer that may be narrower than fp32; each is fp32 or bf16. They affect
// speed and memory, and are not part of the model: a resumed run may choose others.
struct NumberFormats {
  // Gradients of bf16 weights, from the backward pass to their reduction, which then sends them
  // without conversion.
  DType gradients = DType::kF32;
  DType gradient_wire = DType::kF32;  // gradients sent for reduction
  DType weight_wire = DType::kF32;    // updated weights sent to all ranks
  // bf16 state is rounded stochastically, except for embedding_state, as in nanochat.
  DType momentum_state = DType::kF32;  // Muon's momentum
  DType adam_state = DType::kF32;      // AdamW's moments, except those of lambdas and gates
  // AdamW's moments of embeddings, rounded to nearest; cannot be combined with adam_state.
  DType embedding_state = DType::kF32;
  // Masters of bf16 weights. true: 16 bits each beside the replica (base/split_float.h); false:
  // fp32.
  bool split_masters = false;
};

}  // namespace muo::optim
