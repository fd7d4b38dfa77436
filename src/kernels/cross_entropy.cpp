#include "kernels/cross_entropy.h"

#include <string>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<CrossEntropyArgs> cross_entropy_operation("cross_entropy");
Operation<SoftCapArgs> soft_cap_operation("soft_cap");

}  // namespace

void cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  ArgumentCheck check("cross_entropy");
  check.fp32_or_bf16("logits", args.logits, 2, "(n, padded vocab)");
  check.tensor("losses", args.losses, {args.logits.shape[0]});
  check.tensor("targets", args.targets, {args.logits.shape[0]}, DType::kI32);
  if (args.gradient_scale) check.count("gradient_scale", args.gradient_scale, 1);
  check.no_overlap({{"losses", args.losses}, {"logits", args.logits}},
                   {{"targets", args.targets}, {"gradient_scale", args.gradient_scale}});
  check.that(
      0 < args.vocab && args.vocab <= args.logits.shape[1],
      "vocab " + std::to_string(args.vocab) + " does not fit logits " + args.logits.shape.text());
  check.that(args.softcap >= 0.0F, "softcap is negative or not a number");
  cross_entropy_operation.submit(stream, args,
                                 {.writes = {args.losses},
                                  .updates = {args.logits},
                                  .reads = {args.targets, args.gradient_scale}});
}

void soft_cap(Stream& stream, const SoftCapArgs& args) {
  ArgumentCheck check("soft_cap");
  check.fp32_or_bf16("logits", args.logits);
  check.that(args.softcap >= 0.0F, "softcap is negative or not a number");
  soft_cap_operation.submit(stream, args, {.writes = {}, .updates = {args.logits}, .reads = {}});
}

}  // namespace muo
