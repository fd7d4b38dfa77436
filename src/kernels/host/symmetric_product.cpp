#include "kernels/symmetric_product.h"

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/host/gemm.h"
#include "kernels/host/gemm_block.h"
#include "kernels/host/scratch.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// Rows per product: few enough that little above the diagonal is computed, and enough for the
// library to be fast. For n = 256 to 1536, 64 to 128 rows were measured to be equally fast.
constexpr std::int64_t kRows = 96;
constexpr std::int64_t kDepth = 512;  // columns of bf16 operands that are widened at a time
constexpr std::int64_t kTile = 32;

// The lower triangle of d (n, n) <- alpha op(a) b + beta d, where b is op(a)^T if it is null.
template <class In, class T>
void lower_triangle(Product p, MatrixBlock<const In> a, MatrixBlock<const In> b, MatrixBlock<T> d) {
  if (b.data == nullptr) {
    b = a;
    p.transpose_b = !p.transpose_a;
  }
  for (std::int64_t i = 0; i < p.n; i += kRows) {
    Product block = p;
    block.m = std::min(kRows, p.n - i);
    block.n = i + block.m;
    product(block, {a.data + (p.transpose_a ? i : i * a.stride), a.stride}, b,
            {d.data + i * d.stride, d.stride});
  }
}

template <class T>
void finish(T* d, float diagonal, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    d[i * n + i] = from_f32<T>(to_f32(d[i * n + i]) + diagonal);
  for (std::int64_t i0 = 0; i0 < n; i0 += kTile)
    for (std::int64_t j0 = 0; j0 <= i0; j0 += kTile)
      for (std::int64_t i = i0; i < std::min(i0 + kTile, n); ++i)
        for (std::int64_t j = j0; j < std::min(j0 + kTile, i); ++j)
          d[j * n + i] = d[i * n + j];
}

// The sum over k is in fp32: operands are widened kDepth columns at a time, and the whole
// result exists in fp32.
void multiply_widened(const Product& p, const BF16* a, const BF16* b, const BF16* c, BF16* d) {
  thread_local Scratch scratch;
  float* sum = scratch.floats(p.n * p.n + 2 * p.n * kDepth);
  float* wide_a = sum + p.n * p.n;
  float* wide_b = wide_a + p.n * kDepth;
  const MatrixBlock<const BF16> whole_a{a, p.transpose_a ? p.n : p.k};
  Product block = p;
  block.beta = 0.0F;
  for (std::int64_t l = 0; l < p.k; l += kDepth) {
    block.k = std::min(kDepth, p.k - l);
    lower_triangle<float, float>(block, widened(wide_a, whole_a, p.transpose_a, 0, l, p.n, block.k),
                                 b == nullptr
                                     ? MatrixBlock<const float>{}
                                     : widened(wide_b, {b, p.n}, false, l, 0, block.k, p.n),
                                 {sum, p.n});
    block.beta = 1.0F;
  }
  for (std::int64_t i = 0; i < p.n; ++i)
    round_block({d + i * p.n, p.n}, {c == nullptr ? nullptr : c + i * p.n, p.n}, p.beta,
                {sum + i * p.n, p.n}, 1, i + 1);
}

// b is null for op(a)^T; c is null if it is ignored.
template <class T>
void multiply(const Product& p, const T* a, const T* b, const T* c, T* d) {
  if constexpr (std::is_same_v<T, BF16>)
    if (!multiplies_bf16()) return multiply_widened(p, a, b, c, d);
  if (c != nullptr && c != d) std::copy_n(c, p.n * p.n, d);
  lower_triangle<T, T>(p, {a, p.transpose_a ? p.n : p.k}, {b, p.n}, {d, p.n});
}

void symmetric_product(const SymmetricProductArgs& args) {
  const std::int64_t n = args.d.shape[1];
  const bool adds = args.c && args.beta != 0.0F;
  const Product p{.m = n,
                  .n = n,
                  .k = args.a.shape[args.transpose_a ? 1 : 2],
                  .transpose_a = args.transpose_a,
                  .transpose_b = false,
                  .alpha = args.alpha,
                  .beta = adds ? args.beta : 0.0F};
  if (args.d.numel() == 0) return;
  dispatch(args.d.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < args.d.shape[0]; ++i) {
      T* d = args.d.as<T>() + i * n * n;
      multiply(p, args.a.as<T>() + i * n * p.k, args.b ? args.b.as<T>() + i * n * n : nullptr,
               adds ? args.c.as<T>() + i * n * n : nullptr, d);
      finish(d, args.diagonal, n);
    }
  });
}

const KernelRegistration kRegistration(&symmetric_product);

}  // namespace

double symmetric_product_flops(const SymmetricProductArgs& args) {
  const std::int64_t n = args.d.shape[1];
  const std::int64_t k = args.a.shape[args.transpose_a ? 1 : 2];
  std::int64_t elements = 0;
  for (std::int64_t i = 0; i < n; i += kRows)
    elements += std::min(kRows, n - i) * std::min(i + kRows, n);
  return 2.0 * static_cast<double>(args.d.shape[0]) * static_cast<double>(elements) *
         static_cast<double>(k);
}

}  // namespace muo::host
