#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// out <- [out if accumulate] + scale * sum(x), in a fixed order. out is one fp64.
struct SumArgs {
  Tensor out;  // () fp64
  Tensor x;    // any shape, fp32
  double scale = 1.0;
  bool accumulate = false;
};
void sum(Stream& stream, const SumArgs& args);

// out <- [out if accumulate] + sum(x^2), in fp64 and a fixed order; NaN or infinity in x makes out
// non-finite, which is how the finite flag is found (decision
// compute-then-commit). bf16 gives the bits of the same values in fp32.
struct SumSquaresArgs {
  Tensor out;  // () fp64
  Tensor x;    // any shape, fp32 or bf16
  bool accumulate = false;
};
void sum_squares(Stream& stream, const SumSquaresArgs& args);

// weighted <- [weighted if accumulate] + sum(losses[i] * weights[targets[i]]) and the like for
// bits per byte: nats over targets whose token has bytes > 0, and the bytes of those targets.
//   out[0] += sum(losses[i]) over targets[i] >= 0      out[1] += count of those
//   out[2] += sum(losses[i]) where bytes[targets[i]] > 0      out[3] += sum(bytes[targets[i]])
struct LossTotalsArgs {
  Tensor out;      // (4) fp64, in-out
  Tensor losses;   // (n) fp32
  Tensor targets;  // (n) int32, -1: ignored
  Tensor bytes;    // (vocab) int32: bytes of text that a token stands for; special tokens 0
};
void loss_totals(Stream& stream, const LossTotalsArgs& args);

}  // namespace muo
