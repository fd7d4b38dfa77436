#include <cblas.h>

#include <algorithm>

#include "kernels/blas.h"
#include "kernels/gemm_impl.h"

namespace muo::host {
namespace {

void scale(float* d, const float* c, float beta, std::int64_t count) {
  if (beta == 0.0F)
    std::fill_n(d, count, 0.0F);
  else
    std::transform(c, c + count, d, [beta](float x) { return beta * x; });
}

}  // namespace

void gemm(const GemmArgs& args) {
  require_safe_blas();
  const bool batched = args.d.shape.rank() == 3;
  const std::size_t row_axis = batched ? 1 : 0;
  const std::int64_t batch = batched ? args.d.shape[0] : 1;
  const std::int64_t m = args.d.shape[row_axis];
  const std::int64_t n = args.d.shape[row_axis + 1];
  const std::int64_t k = args.a.shape[args.transpose_a ? row_axis : row_axis + 1];
  if (args.d.numel() == 0) return;

  auto* d = args.d.as<float>();
  const auto* c = args.c ? args.c.as<float>() : nullptr;
  const float beta = c == nullptr ? 0.0F : args.beta;
  if (k == 0) return scale(d, c, beta, args.d.numel());

  const auto* a = args.a.as<float>();
  const auto* b = args.b.as<float>();
  const auto extent = [](std::int64_t x) { return static_cast<blasint>(x); };
  for (std::int64_t i = 0; i < batch; ++i) {
    float* const di = d + i * m * n;
    // Here, not once for the batch: the matrix is in the cache when the product reads it.
    if (beta != 0.0F && c != d) std::copy_n(c + i * m * n, m * n, di);
    cblas_sgemm(CblasRowMajor, args.transpose_a ? CblasTrans : CblasNoTrans,
                args.transpose_b ? CblasTrans : CblasNoTrans, extent(m), extent(n), extent(k),
                args.alpha, a + i * m * k, extent(args.transpose_a ? m : k), b + i * k * n,
                extent(args.transpose_b ? k : n), beta, di, extent(n));
  }
}

}  // namespace muo::host
