#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/host/few_rows.h"
#include "kernels/host/gemm.h"
#include "kernels/host/gemm_block.h"
#include "kernels/host/scratch.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// Block sizes of bf16 products that are computed in fp32: operands are widened into scratch block
// by block, and a bf16 result exists in fp32 one block at a time. The sizes keep widened data in or
// near the caches, and the cost of widening at a few percent of the product's cost.
constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kColumns = 512;
constexpr std::int64_t kDepth = 512;

thread_local Scratch scratch;

template <class T>
void multiply_widened(const Product& p, MatrixBlock<const BF16> whole_a,
                      MatrixBlock<const BF16> whole_b, const T* c, T* d) {
  float* wide_a = scratch.floats(kRows * kDepth + kDepth * kColumns + kRows * kColumns);
  float* wide_b = wide_a + kRows * kDepth;
  float* wide_d = wide_b + kDepth * kColumns;
  constexpr bool kRounds = std::is_same_v<T, BF16>;
  if constexpr (!kRounds)
    if (p.beta != 0.0F && c != d) std::copy_n(c, p.m * p.n, d);
  for (std::int64_t j = 0; j < p.n; j += kColumns)
    for (std::int64_t i = 0; i < p.m; i += kRows) {
      const std::int64_t at = i * p.n + j;
      Product block = p;
      block.m = std::min(kRows, p.m - i);
      block.n = std::min(kColumns, p.n - j);
      MatrixBlock<float> out{wide_d, block.n};
      if constexpr (kRounds)
        block.beta = 0.0F;
      else
        out = {d + at, p.n};
      for (std::int64_t l = 0; l < p.k; l += kDepth) {
        block.k = std::min(kDepth, p.k - l);
        product(block, widened(wide_a, whole_a, p.transpose_a, i, l, block.m, block.k),
                widened(wide_b, whole_b, p.transpose_b, l, j, block.k, block.n), out);
        block.beta = 1.0F;
      }
      if constexpr (kRounds)
        round_block({d + at, p.n}, {p.beta == 0.0F ? nullptr : c + at, p.n}, p.beta,
                    {out.data, out.stride}, block.m, block.n);
    }
}

// If an operand is read along its columns (a transposed a, a plain b) and its rows are
// multiples of 4 KiB long, the elements of a column map to the same few sets of each cache, and
// a product takes up to twice as long. To avoid this, kPanel columns at a time are copied to
// rows of another length.
constexpr std::int64_t kPanel = 1024;

template <class In>
class Panel {
 public:
  // Whether copying pays off; `uses` is the number of multiply-adds per copied number.
  static bool is_faster(std::int64_t columns, std::int64_t rows, std::int64_t uses) {
    return columns % kPanel == 0 && columns * kSize % 4096 == 0 && rows <= kMaxRows && uses >= 32;
  }
  // A copy of columns [first, first + kPanel) of x (rows, columns), valid until the next call.
  MatrixBlock<const In> operator()(MatrixBlock<const In> x, std::int64_t rows, std::int64_t first) {
    constexpr std::int64_t kStride = kPanel + 64 / kSize;
    In* copy = reinterpret_cast<In*>(memory_.floats(rows * kStride * kSize / 4));
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(x.data + row * x.stride + first, kPanel, copy + row * kStride);
    return {copy, kStride};
  }

 private:
  static constexpr std::int64_t kSize = sizeof(In);
  static constexpr std::int64_t kMaxRows = 8192;  // 34 MB per thread
  Scratch memory_;
};

template <class In, class T>
void multiply_by_columns(const Product& p, MatrixBlock<const In> a, MatrixBlock<const In> b,
                         MatrixBlock<T> d) {
  if (p.transpose_b || !Panel<In>::is_faster(p.n, p.k, p.m)) return product(p, a, b, d);
  static thread_local Panel<In> panel;
  Product block = p;
  block.n = kPanel;
  for (std::int64_t j = 0; j < p.n; j += kPanel)
    product(block, a, panel(b, p.k, j), MatrixBlock<T>{d.data + j, d.stride});
}

template <class In, class T>
void multiply_by_panels(const Product& p, MatrixBlock<const In> a, MatrixBlock<const In> b,
                        MatrixBlock<T> d) {
  if (!p.transpose_a || !Panel<In>::is_faster(p.m, p.k, p.n))
    return multiply_by_columns(p, a, b, d);
  static thread_local Panel<In> panel;
  Product block = p;
  block.m = kPanel;
  for (std::int64_t i = 0; i < p.m; i += kPanel)
    multiply_by_columns(block, panel(a, p.k, i), b,
                        MatrixBlock<T>{d.data + i * d.stride, d.stride});
}

// T is the type of c and d, In that of the operands. All choices depend only on the arguments and
// the CPU, so every run gives the same bits.
template <class In, class T>
void multiply(const Product& p, const In* a, const In* b, const T* c, T* d) {
  const MatrixBlock<const In> whole_a{a, p.transpose_a ? p.m : p.k};
  const MatrixBlock<const In> whole_b{b, p.transpose_b ? p.k : p.n};
  if constexpr (std::is_same_v<In, BF16>)
    if (!multiplies_bf16()) return multiply_widened(p, whole_a, whole_b, c, d);
  if (p.beta != 0.0F && c != d) std::copy_n(c, p.m * p.n, d);
  multiply_by_panels(p, whole_a, whole_b, MatrixBlock<T>{d, p.n});
}

// d <- beta c, for products with k = 0. c is null if it is ignored.
template <class T>
void scale(T* d, const T* c, float beta, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    d[i] = from_f32<T>(c == nullptr ? 0.0F : beta * to_f32(c[i]));
}

}  // namespace

void gemm(const GemmArgs& args) {
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
  if (args.few_rows) return few_rows(args);
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

Gemm& active_gemm() {
  static Gemm in_use = &gemm;
  return in_use;
}

namespace {
const KernelRegistration kRegistration(+[](const GemmArgs& args) { active_gemm()(args); });
}  // namespace

}  // namespace muo::host
