#include "kernels/draw.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<DrawArgs> operation("draw");

}  // namespace

void draw(Stream& stream, const DrawArgs& args) {
  ArgumentCheck check("draw");
  check.any_shape("y", args.y);
  check.that(args.begin >= 0, "begin is negative");
  check.that(args.init.kind != InitialValues::Kind::kLinear ||
                 (args.begin <= args.count && args.y.numel() <= args.count - args.begin),
             "y ends beyond the tensor");
  operation.submit(stream, args, {.writes = {args.y}, .reads = {}});
}

}  // namespace muo
