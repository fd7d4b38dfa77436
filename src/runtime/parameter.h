#pragma once

#include <cstdint>
#include <string>

#include "runtime/tensor.h"

namespace muo {

// What a parameter is to the model; the optimizer maps roles to update rules and groups
// (docs/spec/optimizer.md, "Parameter groups"), the model knows nothing of those.
enum class ParamRole : std::uint8_t {
  kMatrix,
  kEmbedding,
  kUnembedding,
  kValueEmbedding,
  kResidLambda,
  kX0Lambda,
  kSmear,
};

// How the elements of a parameter begin.
struct InitialValues {
  enum class Kind : std::uint8_t {
    kConstant,  // a
    kNormal,    // mean 0, standard deviation a
    kUniform,   // in [-a, a)
    kPositive,  // uniform in [0, a)
    kLinear,    // from a for the first element to a + b for the last
  };
  Kind kind = Kind::kConstant;
  double a = 0;
  double b = 0;
};

inline constexpr int kNoLayer = -1;

struct ParamSpec {
  std::string name;             // nanochat's state-dict name, "transformer.h.3.attn.c_q.weight"
  Shape shape;                  // logical: what a checkpoint holds
  std::int64_t used_rows = -1;  // those behind pad a vocabulary; -1: all are used
  ParamRole role = ParamRole::kMatrix;
  int layer = kNoLayer;  // the block whose weight it is
  InitialValues init = {};
  DType replica = DType::kF32;  // of the copy that forward reads; masters are fp32
  int ready = 0;                // backward order: gradients with a smaller value are final earlier
  int use = 0;                  // forward order: weights with a smaller value are read earlier
  bool in_backward = true;      // whether backward reads the weight as well

  [[nodiscard]] std::int64_t used_elements() const {
    return used_rows < 0 ? shape.numel() : used_rows * (shape.numel() / shape[0]);
  }
};

// A part of a logical tensor that this rank holds: what checkpoints are made of. Padding is never
// part of an entry.
struct StateEntry {
  std::string name;        // "transformer.wte.weight", "transformer.wte.weight.adam_m", ...
  Shape shape;             // of the whole logical tensor
  std::int64_t begin = 0;  // first element of `values` in it, flat
  Tensor values;           // flat, contiguous, in device memory
  bool writer = true;      // false: another rank holds the same part and writes it
  // Where `values`, then uint16, are the lower halves of fp32 numbers (base/split_float.h): the
  // upper ones, bf16.
  Tensor upper = {};

  // Of the logical tensor.
  [[nodiscard]] DType dtype() const { return upper ? DType::kF32 : values.dtype; }
};

}  // namespace muo
