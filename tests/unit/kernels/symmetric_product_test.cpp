#include "kernels/symmetric_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/sanitized.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

enum class Product { kRows, kColumns, kCommuting };  // a a^T, a^T a, a b
enum class C { kAbsent, kIsD, kSeparate };
struct Case {
  std::int64_t batch, n, k;
  Product product = Product::kRows;
  DType dtype = DType::kF32;
  C c = C::kAbsent;
  float alpha = 1.5F, beta = -0.75F, diagonal = 0.0F;
};

HostTensor symmetric(const Shape& shape, const char* name) {
  HostTensor out = random_tensor(shape, name);
  const std::int64_t n = shape[1];
  for (std::int64_t l = 0; l < shape[0]; ++l)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j)
        out.values()[static_cast<std::size_t>((l * n + i) * n + j)] =
            out.values()[static_cast<std::size_t>((l * n + j) * n + i)];
  return out;
}

// Circulant matrices, which are symmetric and commute with circulant matrices of any other
// `shift`, for every n.
HostTensor circulant(const Shape& shape, int shift) {
  HostTensor out(shape);
  const std::int64_t n = shape[1];
  for (std::int64_t l = 0; l < shape[0]; ++l)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t around = std::min(std::abs(i - j), n - std::abs(i - j));
        out.values()[static_cast<std::size_t>((l * n + i) * n + j)] =
            static_cast<float>((around * 7 + l + shift) % 13) / 8.0F - 0.5F;
      }
  return out;
}

void expect_agrees(const Case& s) {
  SCOPED_TRACE(concat(s.batch, " x ", s.n, " k ", s.k, " product ", static_cast<int>(s.product),
                      " c ", static_cast<int>(s.c), " ", name_of(s.dtype)));
  const Shape square{s.batch, s.n, s.n};
  const bool columns = s.product == Product::kColumns;
  const bool commuting = s.product == Product::kCommuting;
  const std::int64_t k = commuting ? s.n : s.k;
  const Shape shape = columns ? Shape{s.batch, k, s.n} : Shape{s.batch, s.n, k};
  const HostTensor a =
      (commuting ? circulant(square, 3) : random_tensor(shape, "a")).rounded(s.dtype);
  const HostTensor b = circulant(square, 5).rounded(s.dtype);
  const HostTensor c = symmetric(square, "c").rounded(s.dtype);
  HostTensor unset(square);  // old contents of d do not matter
  std::ranges::fill(unset.values(), std::numeric_limits<float>::quiet_NaN());
  const HostTensor d = s.c == C::kIsD ? c.copy() : unset.rounded(s.dtype);
  const std::vector<double> in_a = a.doubles();
  const std::vector<double> in_b = b.doubles();
  const std::vector<double> in_c = c.doubles();
  test::KernelStream stream;
  symmetric_product(stream, {.d = d,
                             .c = s.c == C::kAbsent ? Tensor{}
                                  : s.c == C::kIsD  ? d
                                                    : c,
                             .a = a,
                             .b = commuting ? b : Tensor{},
                             .alpha = s.alpha,
                             .beta = s.beta,
                             .diagonal = s.diagonal,
                             .transpose_a = columns});
  const std::vector<double> got = d.doubles();
  const double stored = s.dtype == DType::kBF16 ? test::kUnitBF16 : 0.0;
  const auto at = [&](std::int64_t l, std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>((l * s.n + i) * s.n + j);
  };
  for (std::int64_t l = 0; l < s.batch; ++l)
    for (std::int64_t i = 0; i < s.n; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const auto element = [&](std::int64_t row) {
            return in_a[static_cast<std::size_t>(l * s.n * k +
                                                 (columns ? p * s.n + row : row * k + p))];
          };
          const double term = element(i) * (commuting ? in_b[at(l, p, j)] : element(j));
          sum += term;
          magnitude += std::abs(term);
        }
        const double old = s.c == C::kAbsent ? 0.0 : double{s.beta} * in_c[at(l, i, j)];
        const double product = double{s.alpha} * sum + old;
        const double want = product + (i == j ? double{s.diagonal} : 0.0);
        // Roundings of k products and sums, alpha, beta, the last sum and the diagonal; the store
        // rounds once more, and twice on the diagonal.
        const double scale =
            std::abs(double{s.alpha}) * magnitude + std::abs(old) + std::abs(want) + 1e-30;
        const double bound =
            test::worst_case(2 * k + 4) * scale * (1 + stored) +
            stored * (std::abs(want) + (i == j ? std::abs(product) : 0.0)) * (1 + stored);
        ASSERT_LE(std::abs(got[at(l, i, j)] - want), bound) << l << " " << i << " " << j;
        ASSERT_EQ(got[at(l, i, j)], got[at(l, j, i)]) << l << " " << i << " " << j;
      }
}

class SymmetricProduct : public ::testing::TestWithParam<DType> {};

TEST_P(SymmetricProduct, AgreesWithFloat64ForEveryKindAndUseOfC) {
  for (const Product product : {Product::kRows, Product::kColumns, Product::kCommuting})
    for (const C c : {C::kAbsent, C::kIsD, C::kSeparate})
      for (const float diagonal : {0.0F, 3.25F})
        expect_agrees({2, 37, 53, product, GetParam(), c, 1.5F, -0.75F, diagonal});
}

// Blocks have 96 or 256 rows, tiles have 32; bf16 is widened 512 columns at a time.
TEST_P(SymmetricProduct, AgreesWithFloat64AroundItsBlocks) {
  for (const std::int64_t n : {1, 2, 31, 32, 33, 96, 97, 130, 259})
    for (const Product product : {Product::kRows, Product::kColumns, Product::kCommuting})
      expect_agrees({1, n, 21, product, GetParam(), C::kSeparate});
  for (const Product product : {Product::kRows, Product::kColumns})
    for (const std::int64_t k : {1, 512, 1031})
      expect_agrees({2, 35, k, product, GetParam(), C::kIsD});
}

TEST_P(SymmetricProduct, IgnoresCWithoutBeta) {
  expect_agrees({1, 40, 8, Product::kRows, GetParam(), C::kSeparate, 1.0F, 0.0F});
}

TEST_P(SymmetricProduct, ConcurrentCallersGetTheSameBits) {
  const HostTensor a = random_tensor({1, 104, 96}, "a").rounded(GetParam());
  const auto multiply_into = [&](const HostTensor& d) {
    test::KernelStream stream;
    symmetric_product(stream, {.d = d, .a = a});
  };
  const HostTensor want({1, 104, 104}, GetParam());
  multiply_into(want);
  std::vector<int> wrong(3);
  std::vector<std::jthread> callers;
  callers.reserve(wrong.size());
  for (int& count : wrong)
    callers.emplace_back([&] {
      const HostTensor d({1, 104, 104}, GetParam());
      for (int call = 0; call < (test::kSanitized ? 25 : 100); ++call) {
        multiply_into(d);
        count += d.doubles() != want.doubles() ? 1 : 0;
      }
    });
  callers.clear();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST_P(SymmetricProduct, AcceptsEmptyResults) {
  test::KernelStream stream;
  const HostTensor d({0, 4, 4}, GetParam());
  const HostTensor a({0, 4, 3}, GetParam());
  symmetric_product(stream, {.d = d, .a = a});
}

INSTANTIATE_TEST_SUITE_P(Types, SymmetricProduct, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(SymmetricProductArguments, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor d({2, 4, 4});
  const HostTensor a({2, 4, 5});
  const HostTensor square({2, 4, 4});
  const auto message = [&](const SymmetricProductArgs& args) {
    return test::message_of<Error>([&] { symmetric_product(stream, args); });
  };
  EXPECT_THAT(message({.d = a, .a = a}),
              AllOf(HasSubstr("symmetric_product: d is (2, 4, 5)"), HasSubstr("(2, 4, 4)")));
  EXPECT_THAT(message({.d = d, .a = a, .transpose_a = true}), HasSubstr("a is (2, 4, 5)"));
  EXPECT_THAT(message({.d = d, .a = a, .b = square}), HasSubstr("a is (2, 4, 5)"));
  EXPECT_THAT(message({.d = d, .a = square, .b = a}), HasSubstr("b is (2, 4, 5)"));
  EXPECT_THAT(message({.d = d, .a = square, .b = square, .transpose_a = true}),
              HasSubstr("a is transposed, but b is given"));
  EXPECT_THAT(message({.d = d, .c = a, .a = a}), HasSubstr("c is (2, 4, 5)"));
  EXPECT_THAT(message({.d = d, .a = HostTensor({2, 4, 5}, DType::kBF16)}), HasSubstr("a is bf16"));
  EXPECT_THAT(message({.d = d, .a = d}), HasSubstr("d overlaps a"));
  EXPECT_THAT(message({.d = d, .a = square, .b = d}), HasSubstr("d overlaps b"));
  const HostTensor memory({3, 4, 4});
  EXPECT_THAT(message({.d = memory.tensor().rows(0, 2), .c = memory.tensor().rows(1, 3), .a = a}),
              HasSubstr("d overlaps c"));
}

}  // namespace
}  // namespace muo
