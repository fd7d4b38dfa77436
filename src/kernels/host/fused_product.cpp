#include "kernels/fused_product.h"

#include "kernels/activation.h"
#include "kernels/gemm.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

template <class Args>
void run(const Args& args) {
  reinterpret_cast<void (*)(const Args&)>(kernels_of(typeid(Args)).host)(args);
}

void gemm_relu_squared(const GemmReluSquaredArgs& args) {
  run(GemmArgs{.d = args.y, .a = args.x, .b = args.w, .transpose_b = true});
  run(ReluSquaredArgs{.y = args.y, .x = args.y});
}

void gemm_relu_squared_backward(const GemmReluSquaredBackwardArgs& args) {
  run(GemmArgs{.d = args.dx, .a = args.dy, .b = args.w});
  run(ReluSquaredBackwardArgs{.dx = args.dx, .dy = args.dx, .y = args.y});
}

const KernelRegistration kRegistration(&gemm_relu_squared, &gemm_relu_squared_backward);

}  // namespace
}  // namespace muo::host
