#include "kernels/fingerprint.h"

#include "kernels/operation.h"

namespace muo {
namespace {
Operation<FingerprintArgs> operation("fingerprint");
}

void fingerprint(Stream& stream, const FingerprintArgs& args) {
  MUO_CHECK(args.out.numel() == 1 && args.out.dtype == DType::kI64, args.out.shape.text());
  MUO_CHECK(args.x.dtype == DType::kF32 || args.x.dtype == DType::kBF16, name_of(args.x.dtype));
  operation.submit(stream, args, {.writes = {args.out}, .reads = {args.x}});
}

}  // namespace muo
