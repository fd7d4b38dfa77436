#include "kernels/fingerprint.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<FingerprintArgs> operation("fingerprint");
}

void fingerprint(Stream& stream, const FingerprintArgs& args) {
  ArgumentCheck check("fingerprint");
  check.count("out", args.out, 1, DType::kI64);
  check.fp32_or_bf16("x", args.x);
  operation.submit(stream, args, {.writes = {args.out}, .reads = {args.x}});
}

}  // namespace muo
