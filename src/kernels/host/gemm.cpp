#include <algorithm>

#include "kernels/blas.h"
#include "kernels/gemm_impl.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/gemm_block.h"
#include "kernels/host/scratch.h"

namespace muo::host {
namespace {

void multiply(const Product& p, const float* a, const float* b, const float* c, float* d) {
  if (p.beta != 0.0F && c != d) std::copy_n(c, p.m * p.n, d);
  sgemm(p, {a, p.transpose_a ? p.m : p.k}, {b, p.transpose_b ? p.k : p.n}, {d, p.n});
}

// The product of bf16 matrices is computed in fp32, block by block: operands are widened into
// scratch, and of a bf16 result too only a block exists in fp32. The extents of a block keep what
// is widened near the caches and its cost at a few percent of the product's.
constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kColumns = 512;
constexpr std::int64_t kDepth = 512;

struct Blocks {
  float* a;
  float* b;
  float* d;
};
Blocks blocks_of_thread() {
  thread_local Scratch scratch;
  float* a = scratch.floats(kRows * kDepth + kDepth * kColumns + kRows * kColumns);
  float* b = a + kRows * kDepth;
  return {a, b, b + kDepth * kColumns};
}

// T is the type of c and d. Nothing here depends on what else the machine does: the same bits on
// every run.
template <class T>
void multiply(const Product& p, const BF16* a, const BF16* b, const T* c, T* d) {
  const Blocks scratch = blocks_of_thread();
  constexpr bool kRounds = std::is_same_v<T, BF16>;
  const Block<const BF16> whole_a{a, p.transpose_a ? p.m : p.k};
  const Block<const BF16> whole_b{b, p.transpose_b ? p.k : p.n};
  if constexpr (!kRounds)
    if (p.beta != 0.0F && c != d) std::copy_n(c, p.m * p.n, d);
  for (std::int64_t j = 0; j < p.n; j += kColumns)
    for (std::int64_t i = 0; i < p.m; i += kRows) {
      const std::int64_t at = i * p.n + j;
      Product part = p;
      part.m = std::min(kRows, p.m - i);
      part.n = std::min(kColumns, p.n - j);
      Block<float> out{scratch.d, part.n};
      if constexpr (kRounds)
        part.beta = 0.0F;
      else
        out = {d + at, p.n};
      for (std::int64_t l = 0; l < p.k; l += kDepth) {
        part.k = std::min(kDepth, p.k - l);
        sgemm(part, widened(scratch.a, whole_a, p.transpose_a, i, l, part.m, part.k),
              widened(scratch.b, whole_b, p.transpose_b, l, j, part.k, part.n), out);
        part.beta = 1.0F;
      }
      if constexpr (kRounds)
        round_block({d + at, p.n}, {p.beta == 0.0F ? nullptr : c + at, p.n}, p.beta,
                    {out.data, out.stride}, part.m, part.n);
    }
}

// d <- beta c, where there is nothing to multiply. c is null if it does not count.
template <class T>
void scale(T* d, const T* c, float beta, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    d[i] = from_f32<T>(c == nullptr ? 0.0F : beta * to_f32(c[i]));
}

}  // namespace

void gemm(const GemmArgs& args) {
  require_safe_blas();
  const bool batched = args.d.shape.rank() == 3;
  const std::size_t row_axis = batched ? 1 : 0;
  const std::int64_t batch = batched ? args.d.shape[0] : 1;
  const Product p{.m = args.d.shape[row_axis],
                  .n = args.d.shape[row_axis + 1],
                  .k = args.a.shape[args.transpose_a ? row_axis : row_axis + 1],
                  .transpose_a = args.transpose_a,
                  .transpose_b = args.transpose_b,
                  .alpha = args.alpha,
                  .beta = args.c ? args.beta : 0.0F};
  if (args.d.numel() == 0) return;
  const auto run = [&]<class In, class Out>(const In* a, const In* b, const Out* c, Out* d) {
    if (p.k == 0) return scale(d, c, p.beta, args.d.numel());
    for (std::int64_t i = 0; i < batch; ++i)
      multiply(p, a + i * p.m * p.k, b + i * p.k * p.n, c == nullptr ? nullptr : c + i * p.m * p.n,
               d + i * p.m * p.n);
  };
  dispatch(args.d.dtype, [&]<class T>() {
    const T* c = p.beta == 0.0F ? nullptr : args.c.as<T>();
    if (args.a.dtype == DType::kBF16)
      run(args.a.as<BF16>(), args.b.as<BF16>(), c, args.d.as<T>());
    else if constexpr (std::is_same_v<T, float>)
      run(args.a.as<float>(), args.b.as<float>(), c, args.d.as<float>());
  });
}

}  // namespace muo::host
