#include "kernels/draw.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<DrawArgs> operation("draw");

}  // namespace

void draw(Stream& stream, const DrawArgs& args) {
  ArgumentCheck check("draw");
  const bool split = args.y.dtype == DType::kU16;
  check.any_shape("y", args.y, split ? DType::kU16 : DType::kF32);
  if (split) check.tensor("upper", args.upper, args.y.shape, DType::kBF16);
  check.that(args.begin >= 0, "begin is negative");
  check.that(args.init.kind != InitialValues::Kind::kLinear ||
                 (args.begin <= args.count && args.y.numel() <= args.count - args.begin),
             "y ends beyond the tensor");
  operation.submit(stream, args, {.writes = {args.y, args.upper}, .reads = {}});
}

}  // namespace muo
