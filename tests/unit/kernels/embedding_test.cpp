#include "kernels/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/sanitized.h"
#include "support/tensors.h"
#include "support/token_groups.h"
#include "support/tolerance.h"
#include "support/unaligned.h"

namespace muo {
namespace {

using test::grouped;
using test::HostTensor;
using test::random_tensor;
using test::random_tokens;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Embedding, CopiesTheRowsOfTheTokens) {
  test::KernelStream stream;
  constexpr std::int64_t kC = 37;
  const HostTensor table = random_tensor({11, kC}, "table");
  const HostTensor tokens({4}, std::vector<std::int32_t>{10, 0, 7, 0});
  const HostTensor y({4, kC});
  embedding(stream, {.y = y, .table = table, .tokens = tokens});
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < kC; ++j) {
      const auto token = static_cast<std::size_t>(tokens.values<std::int32_t>()[i]);
      EXPECT_EQ(y.values()[i * kC + j], table.values()[token * kC + j]);
    }
}

TEST(Embedding, CopiesRowsOfAnyTypeLengthAndAddress) {
  test::KernelStream stream;
  constexpr std::int64_t kN = 21;
  const HostTensor tokens = random_tokens(kN, 11, "tokens");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t c : {1, 8, 37, 136, 1032}) {
      const HostTensor table = random_tensor({11, c}, "table").rounded(dtype);
      const HostTensor y({kN, c}, dtype);
      const test::Unaligned other(y);
      embedding(stream, {.y = y, .table = table, .tokens = tokens});
      embedding(stream, {.y = other, .table = test::Unaligned(table), .tokens = tokens});
      std::vector<double> want;
      for (const std::int32_t token : tokens.values<std::int32_t>()) {
        const std::vector<double> rows = table.doubles();
        want.insert(want.end(), rows.begin() + token * c, rows.begin() + (token + 1) * c);
      }
      EXPECT_EQ(y.doubles(), want) << name_of(dtype) << " c " << c;
      EXPECT_EQ(other.doubles(), want) << name_of(dtype) << " c " << c;
    }
}

struct Case {
  std::int64_t n, vocab, c, groups;  // 0: no scale
};

// Results are bitwise equal to fp32 sums in the order of the tokens, whatever the blocks and
// batches of a backend are. Every third token is the same, so that it occurs in several batches.
TEST(EmbeddingBackward, IsTheSequentialSum) {
  test::KernelStream stream;
  for (const Case& s : {Case{70, 300, 72, 6}, Case{431, 5, 130, 2}, Case{131, 7, 192, 3},
                        Case{40, 290, 37, 37}, Case{170, 40, 33, 0}, Case{300, 1, 64, 1}})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const bool accumulate = (dtype == DType::kBF16) == (s.n % 2 == 0);
      const HostTensor tokens = random_tokens(s.n, static_cast<std::int32_t>(s.vocab), "tokens");
      for (std::size_t i = 0; i < tokens.values<std::int32_t>().size(); i += 3)
        tokens.values<std::int32_t>()[i] = static_cast<std::int32_t>(s.vocab / 2);
      const HostTensor dy = random_tensor({s.n, s.c}, "dy").rounded(dtype);
      const HostTensor scale = random_tensor({s.n, std::max<std::int64_t>(s.groups, 1)}, "scale");
      const HostTensor dtable = random_tensor({s.vocab, s.c}, "old");
      const HostTensor want = dtable.copy();
      if (!accumulate) std::ranges::fill(want.values(), 0.0F);
      const std::vector<double> values = dy.doubles();
      for (std::int64_t i = 0; i < s.n; ++i)
        for (std::int64_t j = 0; j < s.c; ++j) {
          const auto token = tokens.values<std::int32_t>()[static_cast<std::size_t>(i)];
          float& sum = want.values()[static_cast<std::size_t>(token * s.c + j)];
          const float factor =
              s.groups == 0
                  ? 1.0F
                  : scale.values()[static_cast<std::size_t>(i * s.groups + j / (s.c / s.groups))];
          sum = std::fma(factor, static_cast<float>(values[static_cast<std::size_t>(i * s.c + j)]),
                         sum);
        }
      const test::Unaligned other(dtable);
      const HostTensor groups = grouped(stream, tokens, s.vocab);
      EmbeddingBackwardArgs args{
          .dtable = dtable, .dy = dy, .tokens = tokens, .groups = groups, .accumulate = accumulate};
      if (s.groups > 0) args.scale = scale;
      embedding_backward(stream, args);
      EXPECT_TRUE(std::ranges::equal(dtable.values(), want.values()))
          << s.vocab << " " << s.c << " " << s.groups << " " << name_of(dtype) << accumulate;
      const test::Unaligned other_dy(dy);
      args.dtable = other;
      args.dy = other_dy;
      embedding_backward(stream, args);
      EXPECT_EQ(other.doubles(), want.doubles());
    }
}

// A bf16 dtable gets the sums of fp32, rounded once, whether they start from zero or from
// its old values. In fp32, the 1 + 2^-9 - 1 of the first row is 2^-9; rounded after each
// term, it would be 0.
TEST(EmbeddingBackward, RoundsTheSumsOfBF16Once) {
  test::KernelStream stream;
  for (const Case& s : {Case{70, 300, 72, 6}, Case{431, 5, 130, 2}, Case{131, 7, 192, 3},
                        Case{40, 290, 37, 37}, Case{300, 1, 64, 0}, Case{0, 3, 5, 0}})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const bool accumulate : {false, true}) {
        if (test::kThreadSanitizer && s.vocab > 100) continue;  // many blocks take half a minute
        const HostTensor tokens = random_tokens(s.n, static_cast<std::int32_t>(s.vocab), "tokens");
        const HostTensor dy = random_tensor({s.n, s.c}, "dy").rounded(dtype);
        const HostTensor scale = random_tensor({s.n, std::max<std::int64_t>(s.groups, 1)}, "scale");
        const HostTensor narrow = random_tensor({s.vocab, s.c}, "old").rounded(DType::kBF16);
        const HostTensor wide = narrow.widened();
        const test::Unaligned elsewhere(narrow);
        const HostTensor groups = grouped(stream, tokens, s.vocab);
        EmbeddingBackwardArgs args{.dtable = narrow,
                                   .dy = dy,
                                   .tokens = tokens,
                                   .groups = groups,
                                   .accumulate = accumulate};
        if (s.groups > 0) args.scale = scale;
        for (const Tensor& dtable : {Tensor(narrow), Tensor(wide), Tensor(elsewhere)}) {
          args.dtable = dtable;
          embedding_backward(stream, args);
        }
        const std::vector<double> want = wide.rounded(DType::kBF16).doubles();
        EXPECT_EQ(narrow.doubles(), want) << s.vocab << " " << s.c << name_of(dtype) << accumulate;
        EXPECT_EQ(elsewhere.doubles(), want) << s.vocab << " " << s.c << name_of(dtype);
      }
  const HostTensor dtable({2, 1}, DType::kBF16);
  const HostTensor tokens({4}, std::vector<std::int32_t>{0, 0, 1, 0});
  embedding_backward(stream,
                     {.dtable = dtable,
                      .dy = HostTensor({4, 1}, std::vector<float>{1.0F, 0x1p-9F, 3.0F, -1.0F}),
                      .tokens = tokens,
                      .groups = grouped(stream, tokens, 2)});
  EXPECT_EQ(dtable.doubles(), (std::vector<double>{0x1p-9, 3.0}));
}

// From 31,745 rows on, a block has 128 of them. Their sums and staged bf16 rows take exactly the
// shared memory that a kernel without static shared memory may use without opting in.
TEST(EmbeddingBackward, AcceptsVocabulariesOfRealTokenizers) {
  test::KernelStream stream;
  constexpr std::int64_t kN = 9;
  constexpr std::int64_t kC = 8;
  for (const std::int32_t vocab : {31'744, 31'745, 32'768, 50'304}) {
    const HostTensor tokens({kN}, std::vector<std::int32_t>{0, vocab - 1, 127, 128, vocab - 1,
                                                            vocab / 2, 0, vocab - 2, 1});
    const HostTensor dy = random_tensor({kN, kC}, "dy").rounded(DType::kBF16);
    const HostTensor dtable = random_tensor({vocab, kC}, "old");
    std::vector<double> want(static_cast<std::size_t>(vocab * kC));
    for (std::int64_t i = 0; i < kN * kC; ++i) {
      const auto token = tokens.values<std::int32_t>()[static_cast<std::size_t>(i / kC)];
      // There are at most two terms, so their sum in double, rounded below, is the fp32 sum.
      want[static_cast<std::size_t>(token * kC + i % kC)] +=
          dy.doubles()[static_cast<std::size_t>(i)];
    }
    embedding_backward(
        stream,
        {.dtable = dtable, .dy = dy, .tokens = tokens, .groups = grouped(stream, tokens, vocab)});
    for (double& x : want)
      x = static_cast<double>(static_cast<float>(x));
    EXPECT_EQ(dtable.doubles(), want) << vocab;
  }
}

TEST(EmbeddingBackward, SumsRepeatedTokensAndZeroesAbsentOnes) {
  test::KernelStream stream;
  for (const bool accumulate : {false, true})
    for (const std::int64_t c : {1, 16, 37})
      for (const std::int64_t n : {0, 1, 200}) {
        constexpr std::int64_t kVocab = 13;
        const HostTensor tokens = random_tokens(n, kVocab - 1, "tokens");  // the last is absent
        const HostTensor dy = random_tensor({n, c}, "dy");
        const HostTensor dtable = random_tensor({kVocab, c}, "old");
        const auto size = static_cast<std::size_t>(kVocab * c);
        std::vector<double> want(size);
        std::vector<double> magnitude(size, std::numeric_limits<double>::min());
        if (accumulate) want = dtable.doubles();
        for (std::size_t i = 0; i < size; ++i)
          magnitude[i] += std::abs(want[i]);
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < c; ++j) {
            const auto token = tokens.values<std::int32_t>()[static_cast<std::size_t>(i)];
            const double term{dy.values()[static_cast<std::size_t>(i * c + j)]};
            want[static_cast<std::size_t>(token * c + j)] += term;
            magnitude[static_cast<std::size_t>(token * c + j)] += std::abs(term);
          }
        embedding_backward(stream, {.dtable = dtable,
                                    .dy = dy,
                                    .tokens = tokens,
                                    .groups = grouped(stream, tokens, kVocab),
                                    .accumulate = accumulate});
        EXPECT_LE(test::worst_element<float>(dtable.values(), want, magnitude),
                  test::worst_case(n + 1))
            << "accumulate " << accumulate << " c " << c << " n " << n;
      }
}

TEST(EmbeddingBackward, AddsInTheOrderOfTheTokens) {
  // 2^25 absorbs 1, so only the order (2^25 - 2^25) + 1 keeps it.
  test::KernelStream stream;
  const HostTensor tokens({3}, std::vector<std::int32_t>{2, 2, 2});
  const HostTensor dtable({3, 1});
  embedding_backward(stream, {.dtable = dtable,
                              .dy = HostTensor({3, 1}, std::vector<float>{0x1p25F, -0x1p25F, 1.0F}),
                              .tokens = tokens,
                              .groups = grouped(stream, tokens, 3)});
  EXPECT_EQ(dtable.values()[2], 1.0F);
  embedding_backward(stream, {.dtable = dtable,
                              .dy = HostTensor({3, 1}, std::vector<float>{0x1p25F, 1.0F, -0x1p25F}),
                              .tokens = tokens,
                              .groups = grouped(stream, tokens, 3)});
  EXPECT_EQ(dtable.values()[2], 0.0F);
}

TEST(Embedding, NamesATokenOutsideTheTable) {
  test::KernelStream stream;
  if (!stream.is_host()) GTEST_SKIP() << "a kernel cannot throw: it prints a line and traps";
  const HostTensor table({5, 2});
  const HostTensor y({3, 2});
  for (const std::int32_t bad : {-1, 5}) {
    const HostTensor tokens({3}, std::vector<std::int32_t>{0, bad, 1});
    const auto expected =
        AllOf(HasSubstr(concat("token ", bad, " at position 1")), HasSubstr("outside [0, 5)"));
    EXPECT_THAT(test::message_of<Error>(
                    [&] { embedding(stream, {.y = y, .table = table, .tokens = tokens}); }),
                expected);
    EXPECT_THAT(test::message_of<Error>([&] { grouped(stream, tokens, 5); }), expected);
    const HostTensor groups({token_groups_size(3, 5)}, DType::kI32);
    EXPECT_THAT(test::message_of<Error>([&] {
                  embedding_backward(
                      stream, {.dtable = table, .dy = y, .tokens = tokens, .groups = groups});
                }),
                expected);
  }
}

TEST(Embedding, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor table({5, 2});
  const HostTensor y({3, 2});
  const HostTensor tokens({4}, DType::kI32);
  const HostTensor groups({token_groups_size(4, 5)}, DType::kI32);
  EXPECT_THAT(test::message_of<Error>(
                  [&] { embedding(stream, {.y = y, .table = table, .tokens = tokens}); }),
              AllOf(HasSubstr("embedding: y is (3, 2)"), HasSubstr("expected (4, 2)")));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { embedding(stream, {.y = y, .table = table, .tokens = HostTensor({3})}); }),
              HasSubstr("embedding: tokens is fp32"));
  EXPECT_THAT(test::message_of<Error>([&] {
                embedding_backward(stream,
                                   {.dtable = table, .dy = y, .tokens = tokens, .groups = groups});
              }),
              HasSubstr("embedding_backward: dy is (3, 2)"));
  EXPECT_THAT(test::message_of<Error>([&] {
                embedding_backward(stream, {.dtable = HostTensor({5, 2}, DType::kI32),
                                            .dy = y,
                                            .tokens = tokens,
                                            .groups = groups});
              }),
              HasSubstr("embedding_backward: dtable is int32, expected fp32"));
  // Groups for another vocabulary.
  EXPECT_THAT(test::message_of<Error>([&] {
                embedding_backward(stream, {.dtable = HostTensor({6, 2}),
                                            .dy = HostTensor({4, 2}),
                                            .tokens = tokens,
                                            .groups = groups});
              }),
              HasSubstr("embedding_backward: groups is (10), expected (11)"));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { group_tokens(stream, {.groups = groups, .tokens = tokens, .vocab = 4}); }),
              HasSubstr("group_tokens: groups is (10), expected (9)"));
}

}  // namespace
}  // namespace muo
