#pragma once

#include <cstdint>
#include <string>

#include "runtime/tensor.h"

namespace muo {

// Role of a parameter in the model. The optimizer maps roles to update rules and groups
// (docs/spec/optimizer.md, "Parameter groups"), which the model does not depend on.
enum class ParamRole : std::uint8_t {
  kMatrix,
  kEmbedding,
  kUnembedding,
  kValueEmbedding,
  kResidLambda,
  kX0Lambda,
  kSmear,
};

// Distribution of a parameter's initial values.
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
  Shape shape;                  // logical shape, as in a checkpoint
  std::int64_t used_rows = -1;  // further rows are padding of the vocabulary; -1: all rows are used
  ParamRole role = ParamRole::kMatrix;
  int layer = kNoLayer;  // block that it belongs to
  InitialValues init = {};
  DType replica = DType::kF32;  // dtype of the replica that forward reads; masters are fp32
  int ready = 0;                // backward order: gradients with smaller values are final earlier
  int use = 0;                  // forward order: weights with smaller values are read earlier
  bool in_backward = true;      // backward reads the weight, too

  [[nodiscard]] std::int64_t used_elements() const {
    return used_rows < 0 ? shape.numel() : used_rows * (shape.numel() / shape[0]);
  }
};

// The part of a logical tensor that this rank holds: the unit of checkpoints. An entry never
// includes padding.
struct StateEntry {
  std::string name;        // "transformer.wte.weight", "transformer.wte.weight.adam_m", ...
  Shape shape;             // of the whole logical tensor
  std::int64_t begin = 0;  // first element of `values` in it, flat
  Tensor values;           // flat, contiguous, in device memory
  bool writer = true;      // false: another rank has the same part and saves it
  // Set if `values`, then uint16, are the lower halves of fp32 numbers (base/split_float.h): the
  // upper halves, bf16.
  Tensor upper = {};

  // Dtype of the logical tensor.
  [[nodiscard]] DType dtype() const { return upper ? DType::kF32 : values.dtype; }
};

}  // namespace muo
