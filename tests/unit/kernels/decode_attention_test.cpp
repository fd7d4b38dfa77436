#include "kernels/decode_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;
using ::testing::HasSubstr;

struct Size {
  std::int64_t heads, kv_heads, h, capacity, window;
  std::vector<std::int32_t> positions;  // one position for each row
};

// Sizes across the boundaries of chunks, windows that begin within a chunk, and head sizes that are
// not multiples of a vector.
const std::vector<Size> kSizes = {
    {1, 1, 2, 1, 0, {0}},
    {2, 1, 17, 5, 10, {4, 0, 2}},
    {4, 2, 64, 300, 300, {127, 128, 299}},
    {3, 3, 128, 260, 100, {100, 101, 227, 228, 259}},
    {2, 2, 24, 150, 3, {149, 2}},
    {6, 2, 250, 140, 131, {130, 139}},
    {1, 1, 256, 129, 0, {128, 5}},
    {2, 1, 33, 400, 255, {399, 255, 256}},
};

struct Expected {
  std::vector<double> value, magnitude;  // of out; sum of p |v|
  double score_size = 0;                 // largest sum of scaled |q| |k|
};

Expected reference(const Size& s, float scale, const HostTensor& q, const HostTensor& keys,
                   const HostTensor& values) {
  const std::vector<double> qs = q.doubles(), ks = keys.doubles(), vs = values.doubles();
  Expected out;
  for (std::size_t row = 0; row < s.positions.size(); ++row)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t position = s.positions[row];
      const std::int64_t first = std::max<std::int64_t>(0, position - s.window);
      const auto at = [&](std::int64_t key, std::int64_t d) {
        return static_cast<std::size_t>(
            ((static_cast<std::int64_t>(row) * s.capacity + key) * s.kv_heads +
             head / (s.heads / s.kv_heads)) *
                s.h +
            d);
      };
      const std::size_t query =
          (row * static_cast<std::size_t>(s.heads) + static_cast<std::size_t>(head)) *
          static_cast<std::size_t>(s.h);
      std::vector<double> p;
      for (std::int64_t key = first; key <= position; ++key) {
        double score = 0, size = 0;
        for (std::int64_t d = 0; d < s.h; ++d) {
          const double product = qs[query + static_cast<std::size_t>(d)] * ks[at(key, d)];
          score += product;
          size += std::abs(product);
        }
        out.score_size = std::max(out.score_size, double{scale} * size);
        p.push_back(double{scale} * score);
      }
      const double highest = *std::ranges::max_element(p);
      for (double& x : p)
        x = std::exp(x - highest);
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (std::int64_t d = 0; d < s.h; ++d) {
        double value = 0, magnitude = 0;
        for (std::int64_t key = first; key <= position; ++key) {
          const double v = p[static_cast<std::size_t>(key - first)] / sum * vs[at(key, d)];
          value += v;
          magnitude += std::abs(v);
        }
        out.value.push_back(value);
        out.magnitude.push_back(magnitude);
      }
    }
  return out;
}

std::int64_t rows_of(const Size& s) { return static_cast<std::int64_t>(s.positions.size()); }

TEST(DecodeAttention, AgreesWithFloat64) {
  test::KernelStream stream;
  constexpr float kScale = 0.3F;
  for (const Size& s : kSizes)
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::int64_t b = rows_of(s);
      const HostTensor q = random_tensor({b, s.heads, s.h}, "q").rounded(dtype);
      // The cache has one row more than there are queries.
      const Shape cache{b + 1, s.capacity, s.kv_heads, s.h};
      const HostTensor keys = random_tensor(cache, "k").rounded(dtype);
      const HostTensor values = random_tensor(cache, "v").rounded(dtype);
      const HostTensor out({b, s.heads, s.h}, dtype);
      const HostTensor positions({b}, s.positions);
      const HostTensor workspace({decode_attention_workspace(b, s.heads, s.capacity, s.h)});
      decode_attention(stream, {.out = out,
                                .q = q,
                                .keys = keys,
                                .values = values,
                                .positions = positions,
                                .workspace = workspace,
                                .window = s.window,
                                .scale = kScale});
      const Expected want = reference(s, kScale, q, keys, values);
      // The exponential turns the relative error of a score, times the size of the score, into a
      // relative error of the weight. The remaining errors are those of the exponential (2 ulp), of
      // the sums over keys of weights and of weighted values, of two factors that combine chunks,
      // of the quotient, and of the store.
      const double unit = dtype == DType::kBF16 ? test::kUnitBF16 : 0.0;
      const double tolerance = test::worst_case(s.h + 4) * 2 * want.score_size +
                               test::worst_case(2 * (s.capacity + 10)) + unit;
      EXPECT_LE(test::worst_element<double>(out.doubles(), want.value, want.magnitude), tolerance)
          << s.h << ", " << s.capacity << ", " << name_of(dtype);
    }
}

// Entries of the cache after a position or before its window do not matter, so captured steps
// serve all positions.
TEST(DecodeAttention, ReadsNothingThatItsQueryDoesNotSee) {
  test::KernelStream stream;
  for (const Size& s : kSizes) {
    const std::int64_t b = rows_of(s), width = s.kv_heads * s.h;
    const Shape cache{b, s.capacity, s.kv_heads, s.h};
    const HostTensor q = random_tensor({b, s.heads, s.h}, "q");
    const HostTensor keys = random_tensor(cache, "k");
    const HostTensor values = random_tensor(cache, "v");
    for (std::int64_t row = 0; row < b; ++row)
      for (std::int64_t key = 0; key < s.capacity; ++key) {
        const std::int64_t distance = s.positions[static_cast<std::size_t>(row)] - key;
        if (0 <= distance && distance <= s.window) continue;
        for (const HostTensor* x : {&keys, &values})
          std::fill_n(x->values().begin() + (row * s.capacity + key) * width, width, NAN);
      }
    const HostTensor out({b, s.heads, s.h});
    const HostTensor positions({b}, s.positions);
    const HostTensor workspace({decode_attention_workspace(b, s.heads, s.capacity, s.h)});
    std::ranges::fill(workspace.values(), NAN);
    decode_attention(stream, {.out = out,
                              .q = q,
                              .keys = keys,
                              .values = values,
                              .positions = positions,
                              .workspace = workspace,
                              .window = s.window});
    EXPECT_TRUE(std::ranges::none_of(out.values(), [](float x) { return std::isnan(x); })) << s.h;
  }
}

// The start of a document has the same effect as a window of another length.
TEST(DecodeAttention, ADocumentStartActsLikeAWindow) {
  test::KernelStream stream;
  for (const Size& s : kSizes)
    for (const std::int64_t length : {1, 2, 100, 129}) {
      const std::int64_t b = rows_of(s);
      const Shape cache{b, s.capacity, s.kv_heads, s.h};
      const HostTensor q = random_tensor({b, s.heads, s.h}, "q"), keys = random_tensor(cache, "k"),
                       values = random_tensor(cache, "v"), positions({b}, s.positions);
      std::vector<std::int32_t> begin;
      for (const std::int32_t position : s.positions)
        begin.push_back(std::max(0, position + 1 - static_cast<std::int32_t>(length)));
      const HostTensor starts({b}, begin);
      const HostTensor workspace({decode_attention_workspace(b, s.heads, s.capacity, s.h)});
      const auto run = [&](const Tensor& of_documents, std::int64_t window) {
        const HostTensor out({b, s.heads, s.h});
        decode_attention(stream, {.out = out,
                                  .q = q,
                                  .keys = keys,
                                  .values = values,
                                  .positions = positions,
                                  .workspace = workspace,
                                  .starts = of_documents,
                                  .window = window});
        return out.doubles();
      };
      EXPECT_EQ(run(starts, s.window), run({}, std::min(s.window, length - 1)))
          << s.h << ", " << length;
    }
}

TEST(DecodeAttention, RefusesADocumentThatBeginsAfterItsQuery) {
  test::KernelStream stream;
  if (!stream.is_host()) GTEST_SKIP() << "a kernel cannot throw: it prints a line and traps";
  const HostTensor q({1, 1, 8}), cache({1, 5, 1, 8}), out({1, 1, 8}), workspace({1000});
  const HostTensor positions({1}, std::vector{3}), starts({1}, std::vector{4});
  EXPECT_THAT(test::message_of<Error>([&] {
                decode_attention(stream, {.out = out,
                                          .q = q,
                                          .keys = cache,
                                          .values = cache,
                                          .positions = positions,
                                          .workspace = workspace,
                                          .starts = starts});
              }),
              HasSubstr("decode_attention: start 4 at position 0 is outside [0, 4)"));
}

TEST(CacheAppend, WritesOnlyItsRows) {
  test::KernelStream stream;
  constexpr std::int64_t kRows = 4, kCapacity = 7, kHeads = 2;
  for (const std::int64_t h : {3, 16})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const std::int64_t t : {1, 3}) {
        const Shape cache{kRows, kCapacity, kHeads, h};
        const std::int64_t width = kHeads * h;
        const std::vector<std::int32_t> at = {4, 0, 3};
        const auto b = static_cast<std::int64_t>(at.size());
        const HostTensor k = random_tensor({b, t, kHeads, h}, "k").rounded(dtype);
        const HostTensor v = random_tensor({b, t, kHeads, h}, "v").rounded(dtype);
        const HostTensor positions({b}, at);
        for (const std::vector<std::int32_t>& rows :
             {std::vector<std::int32_t>{}, std::vector<std::int32_t>{3, 0, 2}}) {
          const HostTensor keys = random_tensor(cache, "keys").rounded(dtype);
          const HostTensor values = random_tensor(cache, "values").rounded(dtype);
          std::vector<double> want_keys = keys.doubles(), want_values = values.doubles();
          for (std::size_t i = 0; i < at.size(); ++i) {
            const std::int64_t row = rows.empty() ? static_cast<std::int64_t>(i) : rows[i];
            const std::int64_t to = (row * kCapacity + at[i]) * width;
            const std::int64_t from = static_cast<std::int64_t>(i) * t * width;
            const std::vector<double> ks = k.doubles(), vs = v.doubles();
            std::copy_n(ks.begin() + from, t * width, want_keys.begin() + to);
            std::copy_n(vs.begin() + from, t * width, want_values.begin() + to);
          }
          const HostTensor slots =
              rows.empty() ? HostTensor() : HostTensor({b}, std::vector<std::int32_t>(rows));
          cache_append(stream, {.keys = keys,
                                .values = values,
                                .k = k,
                                .v = v,
                                .slots = slots,
                                .positions = positions});
          EXPECT_EQ(keys.doubles(), want_keys) << h << ", " << t;
          EXPECT_EQ(values.doubles(), want_values) << h << ", " << t;
        }
      }
}

TEST(CacheAppend, WithoutPositionsBeginsAtTheFirst) {
  test::KernelStream stream;
  const HostTensor keys({1, 4, 1, 2}), values({1, 4, 1, 2});
  const HostTensor k = random_tensor({1, 3, 1, 2}, "k");
  cache_append(stream, {.keys = keys, .values = values, .k = k, .v = k});
  std::vector<double> want = k.doubles();
  want.resize(8);
  EXPECT_EQ(keys.doubles(), want);
  EXPECT_EQ(values.doubles(), want);
}

TEST(DecodeAttention, RefusesMismatchedTensors) {
  test::KernelStream stream;
  const HostTensor q({2, 4, 8}), cache({2, 5, 2, 8}), workspace({1000});
  const HostTensor positions({2}, DType::kI32);
  const DecodeAttentionArgs good{.out = HostTensor(),
                                 .q = q,
                                 .keys = cache,
                                 .values = cache,
                                 .positions = positions,
                                 .workspace = workspace};
  const auto expect = [&](const std::string& what, const auto& change) {
    DecodeAttentionArgs args = good;
    const HostTensor out({2, 4, 8});
    args.out = out;
    change(args);
    EXPECT_THAT(test::message_of<Error>([&] { decode_attention(stream, args); }), HasSubstr(what));
  };
  const HostTensor short_cache({1, 5, 2, 8}), three({2, 5, 3, 8}), small({10});
  expect("2 rows, the cache has 1", [&](DecodeAttentionArgs& a) { a.keys = short_cache; });
  expect("4 query heads cannot share 3", [&](DecodeAttentionArgs& a) { a.keys = three; });
  expect("workspace has 10 elements", [&](DecodeAttentionArgs& a) { a.workspace = small; });
  expect("window is -1", [&](DecodeAttentionArgs& a) { a.window = -1; });
}

}  // namespace
}  // namespace muo
