#include "kernels/symmetric_product.h"

#include <limits>

#include "kernels/argument_check.h"
#include "kernels/gemm.h"
#include "kernels/host/gemm.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Cost cost(const SymmetricProductArgs& args) {
  const std::int64_t n = args.d.shape[1];
  return {.shape = product_shape(args.transpose_a, !args.b && !args.transpose_a, n,
                                 args.a.shape[args.transpose_a ? 1 : 2], n, args.d.shape[0]),
          .flops = host::symmetric_product_flops(args)};
}

Operation<SymmetricProductArgs> operation("symmetric_product", &cost);

}  // namespace

void symmetric_product(Stream& stream, const SymmetricProductArgs& args) {
  ArgumentCheck check("symmetric_product");
  check.rank("d", args.d, 3, "(batch, n, n)", args.d.dtype);
  const std::int64_t batch = args.d.shape[0];
  const std::int64_t n = args.d.shape[1];
  const Shape square{batch, n, n};
  check.fp32_or_bf16("d", args.d, square);
  check.rank("a", args.a, 3, "(batch, n, k)", args.d.dtype);
  const std::int64_t k = args.a.shape[args.transpose_a ? 1 : 2];
  check.tensor("a", args.a, args.transpose_a ? Shape{batch, k, n} : Shape{batch, n, k},
               args.d.dtype);
  check.that(k > 0 || args.d.numel() == 0, "a has no columns");
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();  // limit of the BLAS interface
  check.that(n <= kMax && k <= kMax, "an extent is above 2^31 - 1");
  check.no_overlap("d", args.d, "a", args.a);
  if (args.b) {
    check.that(!args.transpose_a, "a is transposed, but b is given");
    check.tensor("a", args.a, square, args.d.dtype);
    check.tensor("b", args.b, square, args.d.dtype);
    check.no_overlap("d", args.d, "b", args.b);
  }
  if (args.c) {
    check.tensor("c", args.c, square, args.d.dtype);
    check.same_or_no_overlap("d", args.d, "c", args.c);
  }
  operation.submit(stream, args, {.writes = {args.d}, .reads = {args.c, args.a, args.b}});
}

}  // namespace muo
