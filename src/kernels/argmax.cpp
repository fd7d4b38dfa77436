#include "kernels/argmax.h"

#include <string>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<ArgmaxArgs> operation("argmax");

}  // namespace

void argmax(Stream& stream, const ArgmaxArgs& args) {
  ArgumentCheck check("argmax");
  check.fp32_or_bf16("x", args.x, 2, "(n, padded vocab)");
  check.tensor("y", args.y, {args.x.shape[0]}, DType::kI32);
  check.no_overlap({{"y", args.y}}, {{"x", args.x}});
  check.that(0 < args.vocab && args.vocab <= args.x.shape[1],
             "vocab " + std::to_string(args.vocab) + " does not fit x " + args.x.shape.text());
  operation.submit(stream, args, {.writes = {args.y}, .reads = {args.x}});
}

}  // namespace muo
