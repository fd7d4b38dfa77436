#include "kernels/adamw.h"

#include "kernels/adamw_impl.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo {
namespace {
Operation<AdamwArgs> kAdamw("adamw", host::adamw);
}  // namespace

void adamw(Stream& stream, const AdamwArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  const std::int64_t n = args.weight.numel();
  for (const Tensor& t : {args.weight, args.m, args.v, args.grad})
    MUO_CHECK(t && t.dtype == DType::kF32 && t.numel() == n, "adamw of ", n, " elements");
  MUO_CHECK(0 <= args.group && args.group < kMaxAdamGroups, "AdamW group ", args.group);
  kAdamw.submit(stream, args,
                {.writes = {args.weight, args.m, args.v}, .reads = {args.grad, args.scalars}});
}

}  // namespace muo
