#include "kernels/transpose.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<TransposeArgs> operation("transpose");

}  // namespace

void transpose(Stream& stream, const TransposeArgs& args) {
  ArgumentCheck check("transpose");
  check.fp32_or_bf16("x", args.x, 3, "(batch, R, C)");
  check.fp32_or_bf16("y", args.y, {args.x.shape[0], args.x.shape[2], args.x.shape[1]});
  check.no_overlap("y", args.y, "x", args.x);
  operation.submit(stream, args, {.writes = {args.y}, .reads = {args.x}});
}

}  // namespace muo
