#include "kernels/update_squares.h"

#include "kernels/operation.h"

namespace muo::host {
namespace {

void sum_update_squares(const SumUpdateSquaresArgs& args) {
  const auto* squares = reinterpret_cast<const UpdateSquares*>(args.squares.as<double>());
  auto* sums = reinterpret_cast<UpdateSquares*>(args.sums.as<double>());
  for (const UpdatePiece& piece : args.pieces) {
    UpdateSquares& sum = sums[piece.param];
    for (std::int64_t i = piece.first; i < piece.first + piece.parts; ++i) {
      sum.change += squares[i].change;
      sum.weight += squares[i].weight;
      sum.u += squares[i].u;
    }
  }
}

const KernelRegistration kRegistration(&sum_update_squares);

}  // namespace
}  // namespace muo::host
