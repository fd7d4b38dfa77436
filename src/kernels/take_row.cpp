#include "kernels/take_row.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
// It moves one row, not all.
Operation<TakeRowArgs> operation("take_row", [](const TakeRowArgs& args) {
  return Cost{.bytes = static_cast<double>(2 * args.out.bytes() + args.index.bytes())};
});
}  // namespace

void take_row(Stream& stream, const TakeRowArgs& args) {
  ArgumentCheck check("take_row");
  check.any_shape("rows", args.rows, DType::kI32);
  check.that(args.rows.shape.rank() >= 1 && args.rows.shape[0] > 0, "rows has no row");
  check.tensor("out", args.out, args.rows.row(0).shape, DType::kI32);
  check.count("index", args.index, 1, DType::kI64);
  check.no_overlap({{"out", args.out}}, {{"rows", args.rows}, {"index", args.index}});
  operation.submit(stream, args, {.writes = {args.out}, .reads = {args.rows, args.index}});
}

}  // namespace muo
