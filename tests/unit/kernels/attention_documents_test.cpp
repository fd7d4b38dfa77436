// Attention within documents: AttentionArgs::starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "support/attention_match.h"
#include "support/attention_reference.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/sanitized.h"
#include "support/tensors.h"

namespace muo::test {
namespace {

// Lengths of documents: one position each, whole rows, and lengths at and next to the boundaries of
// tiles and vectors.
std::vector<std::vector<Index>> documents_of_cases() {
  if (kSanitized) return {{16, 32}, {65, 1, 14}};
  return {{1}, {1000}, {64}, {16, 32}, {63, 2}, {65, 1, 14}, {17, 1, 100}, {128, 1}, {3, 200}};
}

// Returns all values, or only the last one under a sanitizer.
std::vector<Index> all_or_last(std::vector<Index> values) {
  return kSanitized ? std::vector<Index>{values.back()} : values;
}

TEST(AttentionDocuments, MatchesDoubleForEveryLengthAndWindow) {
  for (const Index t : all_or_last({1, 2, 63, 65, 257, 130}))
    for (const Index window : all_or_last({0, 5, t, 64}))
      for (const std::vector<Index>& documents : documents_of_cases())
        expect_matches({.b = 1,
                        .t = t,
                        .heads = 1,
                        .kv_heads = 1,
                        .h = 17,
                        .window = window,
                        .documents = documents});
}

TEST(AttentionDocuments, MatchesDoubleForBatchesAndGroupedHeads) {
  for (const Index group : all_or_last({1, 3}))
    for (const Index window : all_or_last({100, 20}))
      for (const std::vector<Index>& documents : documents_of_cases())
        expect_matches({.b = 3,
                        .t = 100,
                        .heads = 2 * group,
                        .kv_heads = 2,
                        .h = 24,
                        .window = window,
                        .documents = documents});
}

TEST(AttentionDocumentsBF16, MatchesDouble) {
  for (const Index h : all_or_last({8, 17, 64}))
    for (const Index window : all_or_last({0, 5, 200, 64}))
      for (const std::vector<Index>& documents : documents_of_cases())
        expect_matches({.b = 1,
                        .t = 200,
                        .heads = 2,
                        .kv_heads = 1,
                        .h = h,
                        .window = window,
                        .documents = documents},
                       DType::kBF16);
  // The first half of a block's keys, a warpgroup's, skips every second tile of queries.
  expect_matches({.b = kSanitized ? 1 : 8,
                  .t = 256,
                  .heads = 4,
                  .kv_heads = 1,
                  .h = 64,
                  .window = 256,
                  .documents = {64}},
                 DType::kBF16);
}

// Head sizes for every tile of the tensor-core kernels and of the others; more queries than one
// step of their search for the end of a document.
TEST(AttentionDocumentsBF16, MatchesDoubleForEveryTile) {
  std::vector<std::vector<Index>> all_documents = {{1}, {1000}, {3, 200}, {128, 1}};
  if (kSanitized) all_documents = {{128, 1}};
  for (const Index h : all_or_last({96, 256, 128}))
    for (const Index window : all_or_last({300, 70}))
      for (const std::vector<Index>& documents : all_documents)
        expect_matches({.b = 2,
                        .t = 300,
                        .heads = 1,
                        .kv_heads = 1,
                        .h = h,
                        .window = window,
                        .documents = documents},
                       DType::kBF16);
}

std::vector<const HostTensor*> results_of(const AttentionProblem& p) {
  return {&p.out, &p.lse, &p.dq, &p.dk, &p.dv};
}

TEST(AttentionDocuments, OneDocumentGivesTheBitsOfNoDocuments) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Index window : all_or_last({5, 300, 64})) {
      AttentionCase c{
          .b = kSanitized ? 1 : 2, .t = 300, .heads = 2, .kv_heads = 1, .h = 40, .window = window};
      const auto by_own_kernels = [&] {  // libraries do not support documents
        AttentionProblem p(c, dtype);
        p.forward = p.backward = AttentionKernels::kOwn;
        p.run();
        return p;
      };
      const AttentionProblem none = by_own_kernels();
      c.documents = {300};
      const AttentionProblem one = by_own_kernels();
      for (std::size_t i = 0; i < results_of(one).size(); ++i)
        EXPECT_EQ(results_of(one)[i]->doubles(), results_of(none)[i]->doubles()) << i;
    }
}

TEST(AttentionDocuments, ABoundaryOffByOneIsDetected) {
  for (const Index border : all_or_last({1, 15, 16, 63, 64, 128, 65})) {
    const AttentionCase c{.b = 1,
                          .t = 200,
                          .heads = 1,
                          .kv_heads = 1,
                          .h = 64,
                          .window = 200,
                          .documents = {border, 200}};
    SCOPED_TRACE(testing::PrintToString(c));
    const AttentionProblem p(c);
    p.run();
    for (const Index wrong : {border - 1, border + 1}) {
      if (wrong == 0) continue;
      AttentionCase other_case = c;
      other_case.documents = {wrong, 200};
      AttentionProblem other_problem(other_case);
      const AttentionReference other(other_problem, c.window);
      const double tolerance = other.tolerance(c);
      EXPECT_GT(attention_distance(p.out, other.out), tolerance) << "out, as if " << wrong;
      EXPECT_GT(attention_distance(p.lse, other.lse), tolerance) << "lse, as if " << wrong;
      EXPECT_GT(attention_distance(p.dq, other.dq), tolerance) << "dq, as if " << wrong;
      EXPECT_GT(attention_distance(p.dk, other.dk), tolerance) << "dk, as if " << wrong;
      EXPECT_GT(attention_distance(p.dv, other.dv), tolerance) << "dv, as if " << wrong;
    }
  }
}

// Changing a token influences only its own document: all other documents keep their bits.
TEST(AttentionDocuments, OnlyPositionsOfADocumentInfluenceEachOther) {
  for (const Index token : {0, 29, 30, 31, 95, 96, 129}) {
    SCOPED_TRACE("token " + std::to_string(token));
    const AttentionCase c{.b = 1,
                          .t = 130,
                          .heads = 1,
                          .kv_heads = 1,
                          .h = 16,
                          .window = 130,
                          .documents = {30, 1, 65, 34}};
    const std::vector<std::int32_t> starts = document_starts_of(c);
    const AttentionProblem before(c), after(c);
    before.run();
    for (const HostTensor* x : {&after.q, &after.k, &after.v, &after.dout})
      for (Index d = 0; d < c.h; ++d) {
        float& value = x->values()[static_cast<std::size_t>(token * c.h + d)];
        value = 3.0F - 2.0F * value;
      }
    after.run();
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const bool same_document = starts[i] == starts[static_cast<std::size_t>(token)];
      for (std::size_t n = 0; n < results_of(before).size(); ++n) {
        const std::vector<double> a = results_of(before)[n]->doubles(),
                                  b = results_of(after)[n]->doubles();
        const std::size_t width = a.size() / starts.size();
        const bool same = std::equal(a.begin() + static_cast<std::ptrdiff_t>(i * width),
                                     a.begin() + static_cast<std::ptrdiff_t>((i + 1) * width),
                                     b.begin() + static_cast<std::ptrdiff_t>(i * width));
        EXPECT_TRUE(same || same_document) << "result " << n << " of position " << i;
        // Except dq of the first query of a document, which is 0.
        EXPECT_FALSE(same && static_cast<Index>(i) == token && n != 2)
            << "result " << n << " of position " << i;
      }
    }
  }
}

// Masking alone would not be enough, because 0 times NaN is NaN.
TEST(AttentionDocuments, TilesOfOtherDocumentsAreNotComputed) {
  constexpr Index kLength = 128;  // a multiple of all tiles
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Index h : all_or_last({128, 64})) {
      const AttentionCase c{.b = 1,
                            .t = 3 * kLength,
                            .heads = 2,
                            .kv_heads = 1,
                            .h = h,
                            .window = 3 * kLength,
                            .documents = {kLength}};
      const AttentionProblem clean(c, dtype), poisoned(c, dtype);
      for (const HostTensor* x : {&poisoned.q, &poisoned.k, &poisoned.v, &poisoned.dout}) {
        const std::int64_t bytes = x->tensor().bytes() / 3;
        std::fill_n(x->tensor().data + bytes, bytes, std::byte{0xFF});  // NaNs
      }
      clean.run();
      poisoned.run();
      for (std::size_t n = 0; n < results_of(clean).size(); ++n) {
        const std::vector<double> want = results_of(clean)[n]->doubles(),
                                  got = results_of(poisoned)[n]->doubles();
        const bool by_head = n == 1;  // lse is (b, heads, t)
        const std::size_t rows = by_head ? want.size() : static_cast<std::size_t>(c.t);
        const std::size_t width = want.size() / rows;
        for (std::size_t i = 0; i < want.size(); ++i) {
          const std::size_t position = i / width % static_cast<std::size_t>(c.t);
          const bool is_poisoned = position / kLength == 1;
          EXPECT_TRUE(is_poisoned ? std::isnan(got[i]) : got[i] == want[i])
              << "result " << n << " of position " << position << ", " << name_of(dtype);
        }
      }
    }
}

TEST(AttentionDocuments, RefusesInvalidStarts) {
  AttentionProblem p(
      {.b = 1, .t = 80, .heads = 1, .kv_heads = 1, .h = 16, .window = 80, .documents = {40}});
  KernelStream stream;
  AttentionArgs args = p.forward_args();
  args.starts.shape = {80};
  EXPECT_THAT(message_of<Error>([&] { attention(stream, args); }),
              testing::HasSubstr("starts is (80), expected (1, 80)"));
  args.starts = args.lse.view({1, 80});
  EXPECT_THAT(message_of<Error>([&] { attention(stream, args); }),
              testing::HasSubstr("starts is fp32, expected int32"));
  if (!stream.is_host()) return;  // a device does not check the values
  p.run();
  for (const auto& [position, value] : {std::pair{70, 71}, {70, 3}, {3, -1}}) {
    std::int32_t& start = p.starts.values<std::int32_t>()[static_cast<std::size_t>(position)];
    const std::int32_t saved = start;
    start = value;
    EXPECT_THAT(message_of<Error>([&] { p.run(); }),
                testing::HasSubstr("attention: start " + std::to_string(value) + " at position " +
                                   std::to_string(position)));
    start = saved;
  }
}

}  // namespace
}  // namespace muo::test
