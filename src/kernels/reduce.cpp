#include "kernels/reduce.h"

#include <type_traits>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<SumArgs> sum_operation("sum");
Operation<SumSquaresArgs> sum_squares_operation("sum_squares");
Operation<LossTotalsArgs> loss_totals_operation("loss_totals");

template <class Args>
void check_sum(std::string_view name, const Args& args) {
  ArgumentCheck check(name);
  if constexpr (std::is_same_v<Args, SumSquaresArgs>)
    check.fp32_or_bf16("x", args.x);
  else
    check.any_shape("x", args.x);
  check.tensor("out", args.out, {}, DType::kF64);
  check.no_overlap("out", args.out, "x", args.x);
}

}  // namespace

void sum(Stream& stream, const SumArgs& args) {
  check_sum("sum", args);
  if (args.scale) ArgumentCheck("sum").count("scale", args.scale, 1);
  sum_operation.submit(stream, args,
                       {.writes = {args.accumulate ? Tensor{} : args.out},
                        .updates = {args.accumulate ? args.out : Tensor{}},
                        .reads = {args.x, args.scale}});
}

void sum_squares(Stream& stream, const SumSquaresArgs& args) {
  check_sum("sum_squares", args);
  sum_squares_operation.submit(stream, args,
                               {.writes = {args.accumulate ? Tensor{} : args.out},
                                .updates = {args.accumulate ? args.out : Tensor{}},
                                .reads = {args.x}});
}

void loss_totals(Stream& stream, const LossTotalsArgs& args) {
  ArgumentCheck check("loss_totals");
  check.rank("losses", args.losses, 1, "(n)");
  check.tensor("targets", args.targets, args.losses.shape, DType::kI32);
  check.rank("bytes", args.bytes, 1, "(vocab)", DType::kI32);
  check.tensor("out", args.out, {4}, DType::kF64);
  check.no_overlap({{"out", args.out}},
                   {{"losses", args.losses}, {"targets", args.targets}, {"bytes", args.bytes}});
  loss_totals_operation.submit(
      stream, args, {.writes = {args.out}, .reads = {args.losses, args.targets, args.bytes}});
}

}  // namespace muo
