#include "kernels/update_squares.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<SumUpdateSquaresArgs> operation("sum_update_squares");
}  // namespace

void sum_update_squares(Stream& stream, const SumUpdateSquaresArgs& args) {
  if (args.pieces.empty()) return;
  ArgumentCheck check("sum_update_squares");
  check.rank("sums", args.sums, 2, "(params, 3)", DType::kF64);
  check.rank("squares", args.squares, 2, "(parts, 3)", DType::kF64);
  for (const UpdatePiece& piece : args.pieces)
    check.that(0 <= piece.param && piece.param < args.sums.shape[0] && 0 <= piece.first &&
                   piece.first + piece.parts <= args.squares.shape[0],
               "a piece lies outside of sums or squares");
  operation.submit(stream, args, {.writes = {}, .updates = {args.sums}, .reads = {args.squares}});
}

}  // namespace muo
