#pragma once

#include <cstdint>
#include <span>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Measures how much an update changes weights: line 14 of Algorithm 1, "Distributed Muon", in
// "Parallelize Muon with FSDP2" (docs/spec/optimizer.md, "Size of an update"). A commit
// (muon_commit, adamw) writes sums of squares for each part of kCommitPart elements, and
// sum_update_squares adds them up by parameter, off the critical path.

// Sums of squares over a set of elements, computed in fp64.
struct UpdateSquares {
  double change = 0;  // new weight - old weight, including learning rate, decay and rounding
  double weight = 0;  // new weight
  double u = 0;       // Muon's update before the learning rate; AdamW: 0
};
static_assert(sizeof(UpdateSquares) == 3 * sizeof(double));
inline constexpr std::int64_t kUpdateSquares = 3;

// Elements per part of a commit; a parameter's last part may have fewer.
inline constexpr std::int64_t kCommitPart = 2048;
constexpr std::int64_t commit_parts(std::int64_t elements) {
  return (elements + kCommitPart - 1) / kCommitPart;
}

// Consecutive parts that belong to one parameter.
struct UpdatePiece {
  std::int32_t param = 0;
  std::int32_t parts = 0;
  std::int64_t first = 0;  // index of the first part
};

// sums[param] += the sum of the parts of its pieces, in order. Pieces of a parameter must be
// adjacent. A GPU reads `pieces` when the operation is enqueued, the host when it runs; they must
// outlive the graph.
struct SumUpdateSquaresArgs {
  Tensor sums;     // (params, 3) fp64, in-out: UpdateSquares
  Tensor squares;  // (parts, 3) fp64
  std::span<const UpdatePiece> pieces;
};
void sum_update_squares(Stream& stream, const SumUpdateSquaresArgs& args);

}  // namespace muo
