#include "kernels/fused_product.h"

#include "kernels/argument_check.h"
#include "kernels/gemm.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Cost cost_of(const Tensor& result, std::int64_t k, bool transpose_b) {
  return {.shape = product_shape(false, transpose_b, result.shape[0], k, result.shape[1], 1),
          .flops = 2.0 * static_cast<double>(result.numel()) * static_cast<double>(k)};
}
Cost forward_cost(const GemmReluSquaredArgs& args) {
  return cost_of(args.y, args.x.shape[1], true);
}
Cost backward_cost(const GemmReluSquaredBackwardArgs& args) {
  return cost_of(args.dx, args.dy.shape[1], false);
}

Operation<GemmReluSquaredArgs> forward("gemm_relu_squared", &forward_cost);
Operation<GemmReluSquaredBackwardArgs> backward("gemm_relu_squared_backward", &backward_cost);
std::string (*missing_of)(int device) = nullptr;

}  // namespace

void gemm_relu_squared(Stream& stream, const GemmReluSquaredArgs& args) {
  ArgumentCheck check("gemm_relu_squared");
  check.fp32_or_bf16("x", args.x, 2, "(m, k)");
  check.rank("w", args.w, 2, "(n, k)", args.x.dtype);
  check.tensor("w", args.w, {args.w.shape[0], args.x.shape[1]}, args.x.dtype);
  check.tensor("y", args.y, {args.x.shape[0], args.w.shape[0]}, args.x.dtype);
  check.no_overlap({{"y", args.y}}, {{"x", args.x}, {"w", args.w}});
  forward.submit(stream, args, {.writes = {args.y}, .reads = {args.x, args.w}});
}

void gemm_relu_squared_backward(Stream& stream, const GemmReluSquaredBackwardArgs& args) {
  ArgumentCheck check("gemm_relu_squared_backward");
  check.fp32_or_bf16("dy", args.dy, 2, "(m, k)");
  check.rank("w", args.w, 2, "(k, n)", args.dy.dtype);
  check.tensor("w", args.w, {args.dy.shape[1], args.w.shape[1]}, args.dy.dtype);
  check.tensor("y", args.y, {args.dy.shape[0], args.w.shape[1]}, args.dy.dtype);
  check.tensor("dx", args.dx, args.y.shape, args.dy.dtype);
  check.no_overlap({{"dx", args.dx}}, {{"dy", args.dy}, {"w", args.w}, {"y", args.y}});
  backward.submit(stream, args, {.writes = {args.dx}, .reads = {args.dy, args.w, args.y}});
}

std::string fused_products_missing(int device) {
  return missing_of == nullptr ? "the host has none" : missing_of(device);
}
void register_fused_products(std::string (*missing)(int device)) { missing_of = missing; }

}  // namespace muo
