#include "kernels/cuda/gemm_problem.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "kernels/host/gemm.h"

namespace muo {
namespace {

using cuda::ColumnMajorMatrix;
using cuda::ColumnMajorProblem;
using cuda::GemmProblem;

Tensor tensor(const std::vector<float>& data, const Shape& shape) {
  return host_tensor(data.data(), shape);
}

std::vector<float> random(std::int64_t count, const char* name) {
  std::vector<float> out;
  const CounterRandom draws(7, name);
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(draws.normal(static_cast<std::uint64_t>(i)));
  return out;
}

// Returns element (row, column) of op(x) for matrix `batch`, in the library's column-major layout.
float at(const std::vector<float>& data, const ColumnMajorMatrix& x, std::int64_t batch,
         std::int64_t row, std::int64_t column) {
  if (x.transpose) std::swap(row, column);
  EXPECT_LT(row, x.rows);
  EXPECT_LT(column, x.columns);
  return data.at(static_cast<std::size_t>(batch * x.stride + column * x.leading + row));
}

// Computes the product as cuBLASLt does from the description: d = op(first) op(second),
// column-major.
std::vector<float> multiply(const ColumnMajorProblem& p, const std::vector<float>& first,
                            const std::vector<float>& second, std::int64_t batch, std::int64_t k) {
  std::vector<float> d(static_cast<std::size_t>(batch * p.result.rows * p.result.columns));
  for (std::int64_t l = 0; l < batch; ++l)
    for (std::int64_t column = 0; column < p.result.columns; ++column)
      for (std::int64_t row = 0; row < p.result.rows; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i)
          sum += double{at(first, p.first, l, row, i)} * double{at(second, p.second, l, i, column)};
        d.at(static_cast<std::size_t>(l * p.result.stride + column * p.result.leading + row)) =
            static_cast<float>(sum);
      }
  return d;
}

TEST(GemmProblem, DescribesTheSameProductForColumnMajorLibraries) {
  constexpr std::int64_t kM = 3, kN = 5, kK = 4;
  for (const std::int64_t batch : {1, 2})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        SCOPED_TRACE(concat("batch ", batch, " ", transpose_a, transpose_b));
        const auto a = random(batch * kM * kK, "a");
        const auto b = random(batch * kK * kN, "b");
        std::vector<float> d(static_cast<std::size_t>(batch * kM * kN));
        const auto shape = [&](std::int64_t rows, std::int64_t columns, bool transpose) {
          if (transpose) std::swap(rows, columns);
          return batch == 1 ? Shape{rows, columns} : Shape{batch, rows, columns};
        };
        const GemmArgs args{.d = tensor(d, shape(kM, kN, false)),
                            .a = tensor(a, shape(kM, kK, transpose_a)),
                            .b = tensor(b, shape(kK, kN, transpose_b)),
                            .transpose_a = transpose_a,
                            .transpose_b = transpose_b};
        host::gemm(args);
        const GemmProblem problem = cuda::problem_of(args);
        const auto got = multiply(cuda::column_major(problem), b, a, batch, kK);
        ASSERT_EQ(got.size(), d.size());
        for (std::size_t i = 0; i < d.size(); ++i)
          EXPECT_NEAR(got[i], d[i], 1e-5) << i;
      }
}

// Rows 2 and 3 of op(a) times the first four columns of op(b), where all matrices except
// the last are 5 x 5.
TEST(GemmProblem, OfARunOfRowsExcludesTheOtherRows) {
  constexpr std::int64_t kWhole = 5, kBatch = 2, kK = 3, kRow = 2;
  for (const bool transpose : {false, true}) {
    const auto x = random(kBatch * kWhole * kK, "x");
    std::vector<float> whole(static_cast<std::size_t>(kBatch * kWhole * kWhole));
    const Shape shape = transpose ? Shape{kBatch, kK, kWhole} : Shape{kBatch, kWhole, kK};
    host::gemm({.d = tensor(whole, {kBatch, kWhole, kWhole}),
                .a = tensor(x, shape),
                .b = tensor(x, shape),
                .transpose_a = transpose,
                .transpose_b = !transpose});
    GemmProblem part;
    part.m = 2;
    part.n = 4;
    part.k = kK;
    part.batch = kBatch;
    part.transpose_a = transpose;
    part.transpose_b = !transpose;
    part.whole = kWhole;
    const std::int64_t skipped = transpose ? kRow : kRow * kK;
    std::vector<float> a(x.begin() + skipped, x.end());
    a.resize(x.size());  // the tail is not read
    const cuda::ColumnMajorProblem columns = cuda::column_major(part);
    for (std::int64_t l = 0; l < kBatch; ++l)
      for (std::int64_t i = 0; i < part.m; ++i)
        for (std::int64_t j = 0; j < part.n; ++j) {
          double sum = 0;
          for (std::int64_t p = 0; p < kK; ++p)
            sum += double{at(x, columns.first, l, j, p)} * double{at(a, columns.second, l, p, i)};
          const std::int64_t place =
              l * columns.result.stride + (kRow + i) * columns.result.leading;
          EXPECT_NEAR(sum, whole.at(static_cast<std::size_t>(place + j)), 1e-5);
        }
    GemmProblem dense = part;
    dense.whole = 0;
    EXPECT_NE(text_of(dense), text_of(part));
  }
}

TEST(GemmProblem, StatesTheSourceOfTheAddend) {
  const std::vector<float> c(12), d(12), a(6), b(8);
  GemmArgs args{.d = tensor(d, {3, 4}), .a = tensor(a, {3, 2}), .b = tensor(b, {2, 4})};
  args.beta = 2.0F;
  EXPECT_EQ(cuda::problem_of(args).addend, GemmProblem::Addend::kNone);
  args.c = tensor(c, {3, 4});
  EXPECT_EQ(cuda::problem_of(args).addend, GemmProblem::Addend::kSeparate);
  args.c = args.d;
  EXPECT_EQ(cuda::problem_of(args).addend, GemmProblem::Addend::kInPlace);
  args.beta = 0.0F;
  EXPECT_EQ(cuda::problem_of(args).addend, GemmProblem::Addend::kNone);
}

TEST(GemmProblem, DependsOnAddressesOnlyByTheWidthOfAccesses) {
  alignas(256) static float memory[4096];
  const auto at_bytes = [](std::int64_t offset, const Shape& shape) {
    return Tensor{.data = reinterpret_cast<std::byte*>(memory) + offset, .shape = shape};
  };
  const auto problem = [&](std::int64_t shift) {
    return cuda::problem_of({.d = at_bytes(0, {4, 4}),
                             .a = at_bytes(1024 + shift, {4, 4}),
                             .b = at_bytes(2048, {4, 4})});
  };
  EXPECT_EQ(problem(0), problem(16));
  EXPECT_EQ(problem(0), problem(48));
  EXPECT_EQ(problem(4).alignment.a, 4);
  EXPECT_EQ(problem(8).alignment.a, 8);
  EXPECT_NE(problem(0), problem(4));
}

TEST(GemmProblem, EqualTextsMeanEqualProblems) {
  std::vector<GemmProblem> problems(1);
  const auto vary = [&](auto change) {
    const std::vector<GemmProblem> before = problems;
    for (GemmProblem p : before) {
      change(p);
      problems.push_back(p);
    }
  };
  vary([](GemmProblem& p) { p.m = 12; });
  vary([](GemmProblem& p) { p.n = 12; });
  vary([](GemmProblem& p) { p.k = 12; });
  vary([](GemmProblem& p) { p.batch = 12; });
  vary([](GemmProblem& p) { p.in = DType::kBF16; });
  vary([](GemmProblem& p) { p.out = DType::kBF16; });
  vary([](GemmProblem& p) { p.transpose_a = true; });
  vary([](GemmProblem& p) { p.transpose_b = true; });
  vary([](GemmProblem& p) { p.addend = GemmProblem::Addend::kSeparate; });
  vary([](GemmProblem& p) { p.alignment = {.a = 2, .b = 4, .c = 8, .d = 1}; });
  vary([](GemmProblem& p) { p.workspace = 128 << 20; });
  std::set<std::string> texts;
  for (const GemmProblem& p : problems)
    texts.insert(cuda::text_of(p));
  EXPECT_EQ(texts.size(), problems.size());
  EXPECT_EQ(texts.size(), std::set<GemmProblem>(problems.begin(), problems.end()).size());
}

}  // namespace
}  // namespace muo
