#include "kernels/cast.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<CastArgs> operation("cast");

}  // namespace

void cast(Stream& stream, const CastArgs& args) {
  ArgumentCheck check("cast");
  const bool narrows = args.y.dtype == DType::kBF16;
  check.any_shape("y", args.y, narrows ? DType::kBF16 : DType::kF32);
  check.tensor("x", args.x, args.y.shape, narrows ? DType::kF32 : DType::kBF16);
  check.no_overlap("y", args.y, "x", args.x);
  operation.submit(stream, args, {.writes = {args.y}, .reads = {args.x}});
}

}  // namespace muo
