#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// out <- [out if accumulate] + scale * sum(x), summed in a fixed order.
struct SumArgs {
  Tensor out;         // () fp64
  Tensor x;           // any shape, fp32
  Tensor scale = {};  // (1) fp32; absent: 1
  bool accumulate = false;
};
void sum(Stream& stream, const SumArgs& args);

// out <- [out if accumulate] + sum(x^2), in fp64 and a fixed order. NaN or infinity in x makes out
// non-finite, which is how non-finite gradients are detected (decision compute-then-commit). bf16
// values give the same bits as equal fp32 values.
struct SumSquaresArgs {
  Tensor out;  // () fp64
  Tensor x;    // any shape, fp32 or bf16
  bool accumulate = false;
};
void sum_squares(Stream& stream, const SumSquaresArgs& args);

// Totals of an evaluation, for the mean loss and for bits per byte, which counts only targets whose
// token has bytes > 0:
//   out[0] += sum(losses[i]) over targets[i] >= 0      out[1] += number of those targets
//   out[2] += sum(losses[i]) where bytes[targets[i]] > 0      out[3] += sum(bytes[targets[i]])
struct LossTotalsArgs {
  Tensor out;      // (4) fp64, in-out
  Tensor losses;   // (n) fp32
  Tensor targets;  // (n) int32, -1: ignored
  Tensor bytes;    // (vocab) int32: length of the token's text in bytes; 0 for special tokens
};
void loss_totals(Stream& stream, const LossTotalsArgs& args);

}  // namespace muo
