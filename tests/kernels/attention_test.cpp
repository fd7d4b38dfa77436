#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/immediate_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

using Index = std::int64_t;

struct Case {
  Index b, t, heads, kv_heads, h, window;
  float score_size = 1.0F;  // typical magnitude of a scaled score
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "b " << c.b << ", t " << c.t << ", heads " << c.heads << "/" << c.kv_heads << ", h "
       << c.h << ", window " << c.window << ", scores about " << c.score_size;
}

// Arguments and results of both directions.
struct Problem {
  explicit Problem(const Case& c)
      : size(c),
        q(random_tensor({c.b, c.t, c.heads, c.h}, "q")),
        k(random_tensor({c.b, c.t, c.kv_heads, c.h}, "k")),
        v(random_tensor({c.b, c.t, c.kv_heads, c.h}, "v")),
        dout(random_tensor({c.b, c.t, c.heads, c.h}, "dout")),
        out({c.b, c.t, c.heads, c.h}),
        lse({c.b, c.heads, c.t}),
        dq({c.b, c.t, c.heads, c.h}),
        dk({c.b, c.t, c.kv_heads, c.h}),
        dv({c.b, c.t, c.kv_heads, c.h}),
        // As long as asked for and no longer: AddressSanitizer sees an access behind it.
        workspace({attention_workspace(c.b, c.t, c.heads, c.kv_heads, c.h)}) {}

  [[nodiscard]] float scale() const {
    return size.score_size / std::sqrt(static_cast<float>(size.h));
  }
  [[nodiscard]] AttentionArgs forward_args() const {
    return {.out = out,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .workspace = workspace,
            .window = size.window,
            .scale = scale()};
  }
  [[nodiscard]] AttentionBackwardArgs backward_args() const {
    return {.dq = dq,
            .dk = dk,
            .dv = dv,
            .dout = dout,
            .out = out,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .workspace = workspace,
            .window = size.window,
            .scale = scale()};
  }
  void run() const {
    // Neither the outputs' nor the scratch's old contents may matter.
    for (const HostTensor* x : {&out, &lse, &dq, &dk, &dv, &workspace})
      std::ranges::fill(x->values(), std::numeric_limits<float>::quiet_NaN());
    ImmediateStream stream;
    attention(stream, forward_args());
    std::ranges::fill(workspace.values(), std::numeric_limits<float>::quiet_NaN());
    attention_backward(stream, backward_args());
  }

  Case size;
  HostTensor q, k, v, dout, out, lse, dq, dk, dv, workspace;
};

// The definition in double, with the magnitudes that rounding errors are relative to.
struct Reference {
  struct Result {
    std::vector<double> value;
    std::vector<double> magnitude;
    explicit Result(const HostTensor& like) : value(like.values().size()), magnitude(value) {}
  };

  Reference(const Problem& p, Index window) : out(p.out), lse(p.lse), dq(p.dq), dk(p.dk), dv(p.dv) {
    const Case& c = p.size;
    const std::vector<double> q = p.q.doubles(), k = p.k.doubles(), v = p.v.doubles(),
                              dout = p.dout.doubles();
    const auto h = static_cast<std::size_t>(c.h);
    const double scale = static_cast<double>(p.scale());
    for (Index row = 0; row < c.b; ++row)
      for (Index head = 0; head < c.heads; ++head)
        for (Index i = 0; i < c.t; ++i) {
          const auto at_q = static_cast<std::size_t>(((row * c.t + i) * c.heads + head) * c.h);
          const auto at_k = [&](Index j) {
            return static_cast<std::size_t>(
                ((row * c.t + j) * c.kv_heads + head / (c.heads / c.kv_heads)) * c.h);
          };
          std::vector<Index> keys;
          for (Index j = 0; j < c.t; ++j)
            if (0 <= i - j && i - j <= window) keys.push_back(j);
          std::vector<double> score(keys.size()), p_ij(keys.size()), dp(keys.size()),
              dp_magnitude(keys.size());
          for (std::size_t n = 0; n < keys.size(); ++n) {
            double magnitude = 0;
            for (std::size_t d = 0; d < h; ++d) {
              const double product = scale * q[at_q + d] * k[at_k(keys[n]) + d];
              const double gradient = dout[at_q + d] * v[at_k(keys[n]) + d];
              score[n] += product;
              magnitude += std::abs(product);
              dp[n] += gradient;
              dp_magnitude[n] += std::abs(gradient);
            }
            score_magnitude = std::max(score_magnitude, magnitude);
          }
          const double highest = *std::ranges::max_element(score);
          double sum = 0;
          for (const double x : score)
            sum += std::exp(x - highest);
          const auto at_lse = static_cast<std::size_t>((row * c.heads + head) * c.t + i);
          lse.value[at_lse] = highest + std::log(sum);
          double dot = 0, dot_magnitude = 0;
          for (std::size_t n = 0; n < keys.size(); ++n) {
            p_ij[n] = std::exp(score[n] - lse.value[at_lse]);
            dot += p_ij[n] * dp[n];
            dot_magnitude += p_ij[n] * dp_magnitude[n];
          }
          lse.magnitude[at_lse] = 1.0 + std::abs(lse.value[at_lse]);
          for (std::size_t n = 0; n < keys.size(); ++n) {
            const std::size_t at = at_k(keys[n]);
            const double ds = scale * p_ij[n] * (dp[n] - dot);
            // Probabilities below the normal range count as zero.
            const double p_magnitude = p_ij[n] + 0x1p-126 / kUnitF32;
            const double ds_magnitude = scale * p_magnitude * (dp_magnitude[n] + dot_magnitude);
            for (std::size_t d = 0; d < h; ++d) {
              add(out, at_q + d, p_ij[n], p_magnitude, v[at + d]);
              add(dv, at + d, p_ij[n], p_magnitude, dout[at_q + d]);
              add(dq, at_q + d, ds, ds_magnitude, k[at + d]);
              add(dk, at + d, ds, ds_magnitude, q[at_q + d]);
            }
          }
        }
  }

  // Of one result, relative to its magnitude: a score has h roundings, and its absolute error is a
  // relative one of exp(score), as is that of lse; sums have at most t terms, or, for dk and dv,
  // t for each head.
  [[nodiscard]] double tolerance(const Case& c) const {
    return 2.0 * (1.0 + score_magnitude) * probable(c.h + c.t * c.heads / c.kv_heads);
  }

  Result out, lse, dq, dk, dv;
  double score_magnitude = 0;

 private:
  static void add(Result& result, std::size_t i, double factor, double magnitude, double x) {
    result.value[i] += factor * x;
    result.magnitude[i] += magnitude * std::abs(x);
  }
};

double distance(const HostTensor& got, const Reference::Result& want) {
  return worst_element<float>(got.values(), want.value, want.magnitude);
}

void expect_matches(const Case& c) {
  SCOPED_TRACE(testing::PrintToString(c));
  const Problem p(c);
  p.run();
  const Reference want(p, c.window);
  const double tolerance = want.tolerance(c);
  EXPECT_LT(distance(p.out, want.out), tolerance) << "out";
  EXPECT_LT(distance(p.lse, want.lse), tolerance) << "lse";
  EXPECT_LT(distance(p.dq, want.dq), tolerance) << "dq";
  EXPECT_LT(distance(p.dk, want.dk), tolerance) << "dk";
  EXPECT_LT(distance(p.dv, want.dv), tolerance) << "dv";
}

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// Row `i` of a tensor with b = 1 and one head.
std::span<float> rows_of(const HostTensor& x, Index i) {
  const Index h = x.tensor().shape[3];
  return x.values().subspan(static_cast<std::size_t>(i * h), static_cast<std::size_t>(h));
}

bool any(std::span<const float> values) {
  return std::ranges::any_of(values, [](float x) { return x != 0.0F; });
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(Attention, MatchesDoubleForEveryLengthAndWindow) {
  for (const Index t : {1, 2, 7, 63, 64, 65, 130, 257})
    for (const Index window : {Index{0}, Index{1}, Index{5}, Index{64}, t - 1, t, 10 * t})
      expect_matches({.b = 1, .t = t, .heads = 1, .kv_heads = 1, .h = 17, .window = window});
}

TEST(Attention, MatchesDoubleForEveryHeadSize) {
  for (const Index h : {1, 8, 16, 17, 64, 128, 250, 256})
    for (const Index window : {5, 64, 130})
      expect_matches({.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = h, .window = window});
}

TEST(Attention, MatchesDoubleForBatchesAndGroupedHeads) {
  for (const Index b : {1, 2})
    for (const Index group : {1, 2, 3})
      for (const Index window : {20, 80})
        expect_matches(
            {.b = b, .t = 80, .heads = 2 * group, .kv_heads = 2, .h = 24, .window = window});
}

TEST(Attention, WindowWrongByOneIsNoticed) {
  for (const Index window : {0, 1, 5, 64, 128}) {
    const Case c{.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 64, .window = window};
    SCOPED_TRACE(testing::PrintToString(c));
    const Problem p(c);
    p.run();
    for (const Index wrong : {window - 1, window + 1}) {
      if (wrong < 0) continue;
      const Reference other(p, wrong);
      const double tolerance = other.tolerance(c);
      EXPECT_GT(distance(p.out, other.out), tolerance) << "out, as if window were " << wrong;
      EXPECT_GT(distance(p.lse, other.lse), tolerance) << "lse, as if window were " << wrong;
      EXPECT_GT(distance(p.dq, other.dq), tolerance) << "dq, as if window were " << wrong;
      EXPECT_GT(distance(p.dk, other.dk), tolerance) << "dk, as if window were " << wrong;
      EXPECT_GT(distance(p.dv, other.dv), tolerance) << "dv, as if window were " << wrong;
    }
  }
}

// Another token reaches exactly the queries that see it, and a query's gradient exactly the keys
// that it sees: all else keeps its bits.
TEST(Attention, OnlyVisiblePairsInfluenceEachOther) {
  for (const Index window : {3, 70, 200})
    for (const Index token : {0, 1, 63, 64, 100, 129}) {
      SCOPED_TRACE("window " + std::to_string(window) + ", token " + std::to_string(token));
      const Case c{.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 16, .window = window};
      const Problem before(c);
      before.run();
      const Problem after(c);
      for (const HostTensor* x : {&after.k, &after.v, &after.dout})
        for (float& value : rows_of(*x, token))
          value = 3.0F - 2.0F * value;
      after.run();
      for (Index i = 0; i < c.t; ++i) {
        const bool sees = token <= i && i <= token + window;
        EXPECT_EQ(!sees, same_bits(rows_of(before.out, i), rows_of(after.out, i)))
            << "out of query " << i;
        EXPECT_EQ(!sees, same_bits(rows_of(before.dq, i), rows_of(after.dq, i)))
            << "dq of query " << i;
        const auto j = static_cast<std::size_t>(i);
        EXPECT_EQ(!sees, before.lse.values()[j] == after.lse.values()[j]) << "lse of query " << i;
      }
    }
}

TEST(Attention, GradientOfAQueryReachesOnlyTheKeysItSees) {
  for (const Index window : {3, 70, 200})
    for (const Index query : {0, 1, 63, 64, 100, 129}) {
      SCOPED_TRACE("window " + std::to_string(window) + ", query " + std::to_string(query));
      const Case c{.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 16, .window = window};
      const Problem p(c);
      std::ranges::fill(p.dout.values(), 0.0F);
      for (float& value : rows_of(p.dout, query))
        value = 1.0F;
      p.run();
      for (Index j = 0; j < c.t; ++j) {
        const bool seen = query - window <= j && j <= query;
        EXPECT_EQ(seen, any(rows_of(p.dv, j))) << "dv of key " << j;
        EXPECT_TRUE(seen || !any(rows_of(p.dk, j))) << "dk of key " << j;
      }
    }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  expect_matches(
      {.b = 1, .t = 130, .heads = 2, .kv_heads = 1, .h = 64, .window = 90, .score_size = 100.0F});
  const Problem p(
      {.b = 1, .t = 130, .heads = 2, .kv_heads = 1, .h = 64, .window = 90, .score_size = 1e6F});
  p.run();
  const std::span<const float> v = p.v.values();
  const float highest = *std::ranges::max_element(v), lowest = *std::ranges::min_element(v);
  for (const float x : p.out.values())
    EXPECT_TRUE(lowest <= x && x <= highest) << x;  // an average of values
  for (const HostTensor* x : {&p.lse, &p.dq, &p.dk, &p.dv})
    EXPECT_TRUE(std::ranges::all_of(x->values(), [](float y) { return std::isfinite(y); }));
}

TEST(Attention, NotANumberIsNotHidden) {
  const Problem p({.b = 1, .t = 70, .heads = 1, .kv_heads = 1, .h = 16, .window = 70});
  rows_of(p.q, 66)[3] = std::numeric_limits<float>::quiet_NaN();
  p.run();
  for (const float x : rows_of(p.out, 66))
    EXPECT_TRUE(std::isnan(x));
  EXPECT_TRUE(std::isnan(p.lse.values()[66]));
  for (const float x : rows_of(p.dq, 66))
    EXPECT_TRUE(std::isnan(x));
}

TEST(Attention, SameBitsEveryTime) {
  const Case c{.b = 2, .t = 130, .heads = 4, .kv_heads = 2, .h = 40, .window = 90};
  const Problem first(c), second(c);
  first.run();
  second.run();
  EXPECT_TRUE(same_bits(first.out.values(), second.out.values()));
  EXPECT_TRUE(same_bits(first.lse.values(), second.lse.values()));
  EXPECT_TRUE(same_bits(first.dq.values(), second.dq.values()));
  EXPECT_TRUE(same_bits(first.dk.values(), second.dk.values()));
  EXPECT_TRUE(same_bits(first.dv.values(), second.dv.values()));
}

TEST(Attention, StaysWithinItsWorkspaceWhereverThatBegins) {
  for (const Index h : {17, 64})
    for (const Index offset : {0, 1, 7, 15}) {
      const Problem p({.b = 1, .t = 70, .heads = 1, .kv_heads = 1, .h = h, .window = 70});
      p.run();
      const Index length = p.workspace.tensor().numel();
      constexpr Index kGuard = 64;
      const HostTensor memory({offset + length + kGuard});
      std::ranges::fill(memory.values(), 1234.5F);
      AttentionArgs forward = p.forward_args();
      AttentionBackwardArgs backward = p.backward_args();
      forward.workspace = backward.workspace = memory.tensor().elements(offset, length);
      const HostTensor out = p.out.copy(), dk = p.dk.copy();
      ImmediateStream stream;
      attention(stream, forward);
      attention_backward(stream, backward);
      EXPECT_TRUE(same_bits(out.values(), p.out.values()));
      EXPECT_TRUE(same_bits(dk.values(), p.dk.values()));
      const std::span<float> all = memory.values();
      const auto untouched = [](float x) { return x == 1234.5F; };
      EXPECT_TRUE(std::ranges::all_of(all.first(static_cast<std::size_t>(offset)), untouched));
      EXPECT_TRUE(std::ranges::all_of(all.last(static_cast<std::size_t>(kGuard)), untouched));
      // The promise is not loose either: some of the last 64 elements are in use.
      EXPECT_FALSE(std::ranges::all_of(
          all.subspan(static_cast<std::size_t>(offset + length - kGuard), kGuard), untouched));
    }
}

TEST(Attention, RefusesArgumentsThatDoNotFit) {
  const Problem p({.b = 1, .t = 8, .heads = 4, .kv_heads = 2, .h = 16, .window = 8});
  ImmediateStream stream;
  const auto forward_error = [&](const auto& change) {
    AttentionArgs args = p.forward_args();
    change(args);
    return error_of([&] { attention(stream, args); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(forward_error([](AttentionArgs&) {}), "no error");
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.window = -1; }), HasSubstr("window is -1"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) {
                a.workspace = a.workspace.elements(0, a.workspace.numel() - 1);
              }),
              HasSubstr("attention_workspace"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.workspace = {}; }), HasSubstr("workspace"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) {
                a.v = a.v.view({1, 8, 1, 32});
              }),
              HasSubstr("v is (1, 8, 1, 32), expected (1, 8, 2, 16)"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) {
                a.lse = a.lse.view({1, 8, 4});
              }),
              HasSubstr("lse is (1, 8, 4), expected (1, 4, 8)"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) {
                a.q = a.q.view({1, 8, 64});
              }),
              HasSubstr("q is (1, 8, 64), expected (b, t, heads, h)"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.q.dtype = DType::kI32; }),
              HasSubstr("q is int32"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.out = {}; }), HasSubstr("out is missing"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) {
                a.q.shape = a.out.shape = {1, 8, 3, 16};
                a.lse.shape = {1, 3, 8};
              }),
              HasSubstr("3 query heads cannot share 2 key-value heads"));
  AttentionBackwardArgs backward = p.backward_args();
  backward.dk = backward.dk.view({1, 8, 32});
  EXPECT_THAT(error_of([&] { attention_backward(stream, backward); }),
              HasSubstr("dk is (1, 8, 32), expected (1, 8, 2, 16)"));
  const HostTensor wide({1, 8, 2, 257});
  AttentionArgs args = p.forward_args();
  args.out = args.q;
  EXPECT_THAT(error_of([&] { attention(stream, args); }), HasSubstr("out overlaps q"));
  args.q = args.k = args.v = args.out = wide;
  EXPECT_THAT(error_of([&] { attention(stream, args); }), HasSubstr("head size 257"));
}

}  // namespace
}  // namespace muo::test
