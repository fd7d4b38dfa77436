#include "kernels/rotary.h"

#include <string>
#include <string_view>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<RotaryTableArgs> table("rotary_table");
Operation<RotaryNormArgs> forward("rotary_norm");
Operation<RotaryNormBackwardArgs> backward("rotary_norm_backward");

// Checks that x is (b, t, heads, h) with an even h, and that the tables have a row
// for each position.
void check_rows(ArgumentCheck& check, std::string_view name, const Tensor& x, const Tensor& cos,
                const Tensor& sin, const Tensor& rstd, std::int64_t first_position) {
  check.fp32_or_bf16(name, x, 4, "(b, t, heads, h)");
  const std::int64_t h = x.shape[3];
  check.that(h % 2 == 0, "head size " + std::to_string(h) + " is odd");
  check.tensor("rstd", rstd, {x.shape[0], x.shape[1], x.shape[2]});
  check.rank("cos", cos, 2, "(positions, h/2)", x.dtype);
  check.tensor("cos", cos, {cos.shape[0], h / 2}, x.dtype);
  check.tensor("sin", sin, cos.shape, x.dtype);
  check.that(first_position >= 0 && first_position + x.shape[1] <= cos.shape[0],
             "positions up to " + std::to_string(first_position + x.shape[1]) +
                 " are beyond the tables " + cos.shape.text());
}

}  // namespace

void rotary_table(Stream& stream, const RotaryTableArgs& args) {
  ArgumentCheck check("rotary_table");
  check.fp32_or_bf16("cos", args.cos, 2, "(t, h/2)");
  check.tensor("sin", args.sin, args.cos.shape, args.cos.dtype);
  check.no_overlap("cos", args.cos, "sin", args.sin);
  check.that(args.base > 0, "base must be positive");
  table.submit(stream, args, {.writes = {args.cos, args.sin}, .reads = {}});
}

void rotary_norm(Stream& stream, const RotaryNormArgs& args) {
  ArgumentCheck check("rotary_norm");
  check_rows(check, "x", args.x, args.cos, args.sin, args.rstd, args.first_position);
  if (args.positions) check.tensor("positions", args.positions, {args.x.shape[0]}, DType::kI32);
  check.no_overlap({{"x", args.x}}, {{"rstd", args.rstd}, {"cos", args.cos}, {"sin", args.sin}});
  forward.submit(
      stream, args,
      {.writes = {args.rstd}, .updates = {args.x}, .reads = {args.cos, args.sin, args.positions}});
}

void check_arguments(const RotaryNormBackwardArgs& args) {
  ArgumentCheck check("rotary_norm_backward");
  check_rows(check, "y", args.y, args.cos, args.sin, args.rstd, 0);
  check.tensor("dx", args.dx, args.y.shape, args.y.dtype);
  check.that(args.scale != 0.0F, "scale is 0");
  check.no_overlap({{"dx", args.dx}},
                   {{"y", args.y}, {"rstd", args.rstd}, {"cos", args.cos}, {"sin", args.sin}});
}

void rotary_norm_backward(Stream& stream, const RotaryNormBackwardArgs& args) {
  check_arguments(args);
  backward.submit(
      stream, args,
      {.writes = {}, .updates = {args.dx}, .reads = {args.y, args.rstd, args.cos, args.sin}});
}

}  // namespace muo
