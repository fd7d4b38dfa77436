#include "kernels/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/host_kernels.h"
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

struct Case {
  std::int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
  enum class C { kAbsent, kIsD, kSeparate } c;
  DType in = DType::kF32;
  DType out = DType::kF32;
  bool few_rows = false;
};

struct Reference {
  std::vector<double> value;
  std::vector<double> magnitude;  // rounding errors are relative to this
};

Reference multiply(const Case& s, const std::vector<double>& a, const std::vector<double>& b,
                   const std::vector<double>& c) {
  const auto size = static_cast<std::size_t>(s.batch * s.m * s.n);
  Reference out{std::vector<double>(size), std::vector<double>(size)};
  for (std::int64_t l = 0; l < s.batch; ++l)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t p = 0; p < s.k; ++p) {
          const std::int64_t ia = l * s.m * s.k + (s.transpose_a ? p * s.m + i : i * s.k + p);
          const std::int64_t ib = l * s.k * s.n + (s.transpose_b ? j * s.k + p : p * s.n + j);
          const double term = a[static_cast<std::size_t>(ia)] * b[static_cast<std::size_t>(ib)];
          sum += term;
          magnitude += std::abs(term);
        }
        const auto o = static_cast<std::size_t>((l * s.m + i) * s.n + j);
        const double old = s.c == Case::C::kAbsent || s.beta == 0 ? 0.0 : double{s.beta} * c[o];
        out.value[o] = double{s.alpha} * sum + old;
        out.magnitude[o] = std::abs(double{s.alpha}) * magnitude + std::abs(old) + 1e-30;
      }
  return out;
}

Shape shape_of(const Case& s, std::int64_t rows, std::int64_t columns) {
  return s.batch == 1 ? Shape{rows, columns} : Shape{s.batch, rows, columns};
}

void expect_agrees(const Case& s) {
  SCOPED_TRACE(concat(s.batch, "x", s.m, "x", s.n, "x", s.k, " ta ", s.transpose_a, " tb ",
                      s.transpose_b, " beta ", s.beta, " c ", static_cast<int>(s.c), " ",
                      name_of(s.in), " into ", name_of(s.out)));
  test::KernelStream stream;
  const HostTensor a =
      random_tensor(s.transpose_a ? shape_of(s, s.k, s.m) : shape_of(s, s.m, s.k), "a")
          .rounded(s.in);
  const HostTensor b =
      random_tensor(s.transpose_b ? shape_of(s, s.n, s.k) : shape_of(s, s.k, s.n), "b")
          .rounded(s.in);
  HostTensor unset(shape_of(s, s.m, s.n));  // old contents of d do not matter
  std::ranges::fill(unset.values(), std::numeric_limits<float>::quiet_NaN());
  const HostTensor c =
      (s.beta == 0 ? unset.copy() : random_tensor(shape_of(s, s.m, s.n), "c")).rounded(s.out);
  const HostTensor d = s.c == Case::C::kIsD ? c.copy() : unset.rounded(s.out);
  const Reference want = multiply(s, a.doubles(), b.doubles(), c.doubles());
  gemm(stream, {.d = d,
                .c = s.c == Case::C::kAbsent ? Tensor{}
                     : s.c == Case::C::kIsD  ? d
                                             : c,
                .a = a,
                .b = b,
                .alpha = s.alpha,
                .beta = s.beta,
                .transpose_a = s.transpose_a,
                .transpose_b = s.transpose_b,
                .few_rows = s.few_rows});
  // Roundings of k products and sums, alpha, beta and the last sum; the store rounds once more.
  const double in_fp32 = test::worst_case(2 * s.k + 3);
  const double stored = s.out == DType::kBF16 ? test::kUnitBF16 : 0.0;
  std::vector<double> bound(want.value.size());
  for (std::size_t i = 0; i < bound.size(); ++i)
    bound[i] = in_fp32 * want.magnitude[i] * (1 + stored) + stored * std::abs(want.value[i]);
  EXPECT_LE(test::worst_element<double>(d.doubles(), want.value, bound), 1.0);
}

struct Types {
  DType in, out;
};
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32}};

TEST(Gemm, AgreesWithFloat64ForEveryTransposeAndUseOfC) {
  for (const auto& [in, out] : kTypes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const Case::C c : {Case::C::kAbsent, Case::C::kIsD, Case::C::kSeparate})
          for (const float beta : {0.0F, 1.0F, -0.75F})
            expect_agrees({1, 37, 29, 53, transpose_a, transpose_b, 1.5F, beta, c, in, out});
}

TEST(GemmOfFewRows, AgreesWithFloat64) {
  for (const auto& [in, out] : kTypes)
    for (const std::int64_t m : {1, 2, 16})
      for (const std::int64_t n : {1, 4, 35})
        for (const std::int64_t k : {1, 16, 133})
          for (const Case::C c : {Case::C::kAbsent, Case::C::kIsD, Case::C::kSeparate})
            for (const float beta : {0.0F, 0.75F})
              expect_agrees({1, m, n, k, false, true, 1.5F, beta, c, in, out, true});
}

// A sample must not depend on the other samples of its batch.
TEST(GemmOfFewRows, OnTheHostARowHasTheSameBitsAmongOthers) {
  if (test::kernel_backend() != test::KernelBackend::kHost)
    GTEST_SKIP() << "a GPU's library chooses algorithms by the number of rows";
  test::KernelStream stream;
  constexpr std::int64_t kRows = 7, kColumns = 37, kDepth = 203;
  for (const auto& [in, out] : kTypes) {
    const HostTensor a = random_tensor({kRows, kDepth}, "a").rounded(in);
    const HostTensor b = random_tensor({kColumns, kDepth}, "b").rounded(in);
    const HostTensor all({kRows, kColumns}, out);
    gemm(stream, {.d = all, .a = a, .b = b, .transpose_b = true, .few_rows = true});
    for (std::int64_t row = 0; row < kRows; ++row) {
      const HostTensor alone({1, kColumns}, out);
      gemm(stream, {.d = alone,
                    .a = a.tensor().rows(row, row + 1),
                    .b = b,
                    .transpose_b = true,
                    .few_rows = true});
      const Tensor want = all.tensor().rows(row, row + 1);
      EXPECT_EQ(std::memcmp(alone.tensor().data, want.data, static_cast<std::size_t>(want.bytes())),
                0)
          << row << ", " << name_of(in);
    }
  }
}

TEST(Gemm, AgreesWithFloat64ForSizesAroundTheBlocks) {
  for (const auto& [in, out] : kTypes)
    for (const std::int64_t m : {1, 17, 130})
      for (const std::int64_t n : {1, 33, 257})
        for (const std::int64_t k : {1, 5, 385}) {
          expect_agrees({1, m, n, k, false, true, 1.0F, 0.0F, Case::C::kAbsent, in, out});
          expect_agrees({1, m, n, k, true, false, 1.0F, 1.0F, Case::C::kIsD, in, out});
        }
}

// bf16 operands are widened in blocks of up to 1024 x 512 x 512.
TEST(Gemm, AgreesWithFloat64BeyondOneBlock) {
  for (const DType out : {DType::kBF16, DType::kF32})
    for (const bool transpose : {false, true}) {
      const auto expect = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        expect_agrees({1, m, n, k, transpose, !transpose, 0.5F, -1.0F, Case::C::kSeparate,
                       DType::kBF16, out});
      };
      expect(1027, 20, 21);
      expect(20, 519, 21);
      expect(20, 21, 1031);
    }
}

// Rows of 4 KiB and 8 KiB, for which the host copies panels of 1024 columns.
TEST(Gemm, AgreesWithFloat64WhereColumnsCollide) {
  for (const auto& [in, out] : kTypes) {
    for (const Case::C c : {Case::C::kAbsent, Case::C::kIsD, Case::C::kSeparate}) {
      expect_agrees({1, 2048, 33, 5, true, false, 0.5F, -1.0F, c, in, out});
      expect_agrees({1, 33, 2048, 5, false, false, 0.5F, -1.0F, c, in, out});
    }
    expect_agrees({1, 2048, 2048, 2, true, false, 0.5F, 0.0F, Case::C::kAbsent, in, out});
  }
}

// A long sum with few columns, like the input gradient of the head.
TEST(Gemm, AgreesWithFloat64ForLongSums) {
  for (const auto& [in, out] : kTypes)
    expect_agrees({1, 21, 19, 5003, false, false, 1.0F, 0.0F, Case::C::kAbsent, in, out});
}

TEST(Gemm, AgreesWithFloat64InBatches) {
  for (const auto& [in, out] : kTypes)
    for (const Case::C c : {Case::C::kAbsent, Case::C::kIsD, Case::C::kSeparate}) {
      expect_agrees({3, 11, 7, 19, false, true, 1.0F, 0.5F, c, in, out});
      expect_agrees({3, 11, 7, 19, true, false, 2.0F, 0.5F, c, in, out});
    }
}

TEST(Gemm, WithoutTermsScalesC) {
  for (const auto& [in, out] : kTypes)
    for (const Case::C c : {Case::C::kAbsent, Case::C::kIsD, Case::C::kSeparate})
      for (const std::int64_t batch : {1, 2})
        expect_agrees({batch, 4, 5, 0, false, false, 1.0F, 0.5F, c, in, out});
}

TEST(Gemm, AcceptsEmptyResults) {
  for (const auto& [in, out] : kTypes) {
    expect_agrees({1, 0, 5, 3, false, true, 1.0F, 1.0F, Case::C::kIsD, in, out});
    expect_agrees({1, 5, 0, 3, true, false, 1.0F, 1.0F, Case::C::kIsD, in, out});
  }
}

// 1 + (2^-8 + 2^-20): if the product were rounded first, it would be 2^-8, and the sum, a
// tie, would be 1.
TEST(Gemm, RoundsOnce) {
  test::KernelStream stream;
  const auto bf16 = [](const Shape& shape, const std::vector<float>& values) {
    return HostTensor(shape, values).rounded(DType::kBF16);
  };
  const HostTensor c = bf16({1, 1}, {1.0F});
  const HostTensor a = bf16({1, 2}, {0x1p-8F, 0x1p-20F});
  const HostTensor b = bf16({2, 1}, {1.0F, 1.0F});
  const HostTensor d({1, 1}, DType::kBF16);
  gemm(stream, {.d = d, .c = c, .a = a, .b = b, .beta = 1.0F});
  EXPECT_EQ(d.doubles()[0], 1.0 + 0x1p-7);
}

class GemmCallers : public ::testing::TestWithParam<DType> {};

TEST_P(GemmCallers, GetTheSameBitsConcurrently) {
  const HostTensor a = random_tensor({104, 96}, "a").rounded(GetParam());
  const HostTensor b = random_tensor({104, 96}, "b").rounded(GetParam());
  const HostTensor want({104, 104}, GetParam());
  const auto multiply_into = [&](const HostTensor& d) {
    test::KernelStream stream;
    gemm(stream, {.d = d, .a = a, .b = b, .transpose_b = true});
  };
  multiply_into(want);
  constexpr int kCallers = 3;
  std::vector<int> wrong(kCallers);
  std::vector<std::thread> callers;
  callers.reserve(kCallers);
  for (int i = 0; i < kCallers; ++i)
    callers.emplace_back([&, i] {
      const HostTensor d({104, 104}, GetParam());
      for (int call = 0; call < (test::kSanitized ? 25 : 200); ++call) {
        multiply_into(d);
        wrong[static_cast<std::size_t>(i)] += d.doubles() != want.doubles();
      }
    });
  for (std::thread& caller : callers)
    caller.join();
  EXPECT_EQ(wrong, std::vector<int>(kCallers, 0));
}

INSTANTIATE_TEST_SUITE_P(Types, GemmCallers, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(Gemm, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor d({3, 4});
  const HostTensor a({3, 5});
  const HostTensor b({5, 4});
  const auto message = [&](const GemmArgs& args) {
    return test::message_of<Error>([&] { gemm(stream, args); });
  };
  EXPECT_THAT(message({.d = d, .a = a, .b = b, .transpose_b = true}),
              AllOf(HasSubstr("gemm: b is (5, 4)"), HasSubstr("expected (4, 5)")));
  EXPECT_THAT(message({.d = d, .a = a, .b = b, .transpose_a = true}),
              AllOf(HasSubstr("gemm: a is (3, 5)"), HasSubstr("expected (3, 3)")));
  EXPECT_THAT(message({.d = d, .c = a, .a = a, .b = b}), HasSubstr("gemm: c is (3, 5)"));
  EXPECT_THAT(message({.d = d, .a = Tensor{}, .b = b}), HasSubstr("gemm: a is"));
  EXPECT_THAT(message({.d = d.tensor().view({12}), .a = a, .b = b}), HasSubstr("gemm: d is (12)"));
  const HostTensor doubles({5, 4}, DType::kF64);
  EXPECT_THAT(message({.d = d, .a = a, .b = doubles}), HasSubstr("gemm: b is fp64"));
  const HostTensor halves({5, 4}, DType::kBF16);
  EXPECT_THAT(message({.d = d, .a = a, .b = halves}), HasSubstr("gemm: b is bf16, expected fp32"));
  const HostTensor half_d({3, 4}, DType::kBF16);
  EXPECT_THAT(message({.d = half_d, .a = a, .b = b}), HasSubstr("gemm: a is fp32, expected bf16"));
  const HostTensor elsewhere({5, 4}, DType::kF32, 1);
  EXPECT_THAT(message({.d = d, .a = a, .b = elsewhere}), HasSubstr("gemm: b is on device 1"));
}

TEST(Gemm, RefusesOverlap) {
  test::KernelStream stream;
  const HostTensor memory({7, 4});
  const HostTensor square({4, 4});
  const auto message = [&](const GemmArgs& args) {
    return test::message_of<Error>([&] { gemm(stream, args); });
  };
  const Tensor d = memory.tensor().rows(0, 4);
  EXPECT_THAT(message({.d = d, .a = memory.tensor().rows(3, 7), .b = square}),
              HasSubstr("gemm: d overlaps a"));
  EXPECT_THAT(message({.d = d, .a = square, .b = d}), HasSubstr("gemm: d overlaps b"));
  EXPECT_THAT(message({.d = d, .c = memory.tensor().rows(1, 5), .a = square, .b = square}),
              HasSubstr("gemm: d overlaps c"));
}

int threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// A device is a single thread, so a library that starts a team for each device would
// slow down training.
TEST(GemmLibrary, ComputesOnlyOnTheCallersThread) {
  if (test::kernel_backend() != test::KernelBackend::kHost)
    GTEST_SKIP() << "a GPU's driver and its stand-in start threads of their own";
  int before =
      0;  // counted on the device's thread, because sanitizers start a thread with the first one
  int within = 0;
  std::thread device([&] {
    before = threads_of_process();
    test::KernelStream stream;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const HostTensor a = test::random_tensor({512, 512}, "a").rounded(dtype);
      const HostTensor d({512, 512}, dtype);
      gemm(stream, {.d = d, .a = a, .b = a});
    }
    within = threads_of_process();
  });
  device.join();
  EXPECT_EQ(within, before);
}

TEST(GemmLibrary, DescribesItself) {
  EXPECT_THAT(describe_gemm_library(),
              testing::MatchesRegex("oneDNN [0-9.]+, kernels for .*; bf16 products in .*"));
}

}  // namespace
}  // namespace muo
