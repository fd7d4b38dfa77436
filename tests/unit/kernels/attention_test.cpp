#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/rotary.h"
#include "support/attention_match.h"
#include "support/attention_reference.h"
#include "support/environment.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/sanitized.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(AttentionBF16, MatchesDouble) {
  for (const Index t : {1, 7, 65, 130})
    for (const Index h : {8, 17, 64})
      for (const Index window : {0, 5, 64, 130})
        expect_matches({.b = 1, .t = t, .heads = 1, .kv_heads = 1, .h = h, .window = window},
                       DType::kBF16);
  expect_matches({.b = 2, .t = 80, .heads = 6, .kv_heads = 2, .h = 24, .window = 20}, DType::kBF16);
}

// One probability is e^-0.234375 = 0.79106 relative to the largest; rounded it is 0.79297. Divided
// by the sum, 1.79106, the rounded and the unrounded probability round to different values.
TEST(AttentionBF16, RoundsProbabilitiesBeforeTheyMultiply) {
  const AttentionProblem p({.b = 1, .t = 2, .heads = 1, .kv_heads = 1, .h = 1, .window = 2},
                           DType::kBF16);
  const auto set = [](const HostTensor& x, float first, float second) {
    x.values<BF16>()[0] = to_bf16(first);
    x.values<BF16>()[1] = to_bf16(second);
  };
  set(p.q, 1.0F, 1.0F);
  set(p.k, 0.0F, -0.234375F);
  set(p.v, 0.0F, 1.0F);
  set(p.dout, 0.0F, 1.0F);
  p.run();
  const double e = std::exp(-0.234375);
  const auto rounded = [](double x) {
    return static_cast<double>(to_f32(to_bf16(static_cast<float>(x))));
  };
  EXPECT_EQ(p.out.doubles()[1], rounded(rounded(e) / (1 + e)));
  EXPECT_NE(p.out.doubles()[1], rounded(e / (1 + e)));
}

// The outputs of any implementation, in particular log-sum-exp, are valid inputs of the backward
// pass of any other. The automatic choice differs from the others only on a GPU.
TEST(AttentionBF16, AnyForwardCanBeCombinedWithAnyBackward) {
  if (kernel_backend() == KernelBackend::kHost) GTEST_SKIP() << "the host has one implementation";
  std::vector<AttentionKernels> all = {AttentionKernels::kOwn, AttentionKernels::kPortable};
  if (kernel_backend() == KernelBackend::kCuda) all.push_back(AttentionKernels::kAuto);
  for (const AttentionKernels forward : all)
    for (const AttentionKernels backward : all) {
      SCOPED_TRACE(testing::Message() << "forward " << static_cast<int>(forward) << ", backward "
                                      << static_cast<int>(backward));
      expect_matches({.b = 2, .t = 80, .heads = 6, .kv_heads = 2, .h = 24, .window = 20},
                     DType::kBF16, forward, backward);
      expect_matches(
          {.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 64, .window = 130, .score_size = 6},
          DType::kBF16, forward, backward);
    }
}

TEST(AttentionBF16, TheMethodSelectsTheKernels) {
  if (kernel_backend() == KernelBackend::kHost) GTEST_SKIP() << "the host has one implementation";
  const AttentionCase c{.b = 1, .t = 130, .heads = 2, .kv_heads = 1, .h = 64, .window = 130};
  const auto run = [&](AttentionKernels kernels) {
    AttentionProblem p(c, DType::kBF16);
    p.forward = p.backward = kernels;
    p.run();
    return p;
  };
  const auto same = [](const HostTensor& a, const HostTensor& b) {
    return a.doubles() == b.doubles();
  };
  const AttentionProblem own = run(AttentionKernels::kOwn),
                         portable = run(AttentionKernels::kPortable),
                         automatic = run(AttentionKernels::kAuto);
  EXPECT_FALSE(same(own.lse, portable.lse));
  EXPECT_FALSE(same(own.dq, portable.dq));
  // The automatic choice is that of the environment, if the environment makes one.
  const AttentionKernels named = attention_kernels_of_environment();
  const bool is_portable = named == AttentionKernels::kPortable;
  EXPECT_EQ(same(automatic.lse, portable.lse) && same(automatic.dq, portable.dq), is_portable);
  const bool has_cudnn =
      kernel_backend() == KernelBackend::kCuda || test::environment("SIMT_CUDNN");
  if (named == AttentionKernels::kOwn || !has_cudnn) {
    EXPECT_EQ(same(automatic.lse, own.lse) && same(automatic.dq, own.dq), !is_portable);
  }
}

// With SIMT_CUDNN=wrong, the windows of the library are off by one.
TEST(AttentionBF16, TheLibraryIsUsedOnlyIfItAgreesWithOwnKernels) {
  if (kernel_backend() == KernelBackend::kHost) GTEST_SKIP() << "the host has one implementation";
  const KernelStream stream;  // loads the backend
  const std::optional<std::string> stands_in = environment("SIMT_CUDNN");
  const bool is_wrong = stands_in == "wrong";
  const bool has_cudnn = kernel_backend() == KernelBackend::kCuda || stands_in;
  for (const Index window : {64, 130})
    for (const bool deterministic : {true, false}) {
      AttentionSize size{.b = 2, .t = 130, .heads = 4, .kv_heads = 2, .h = 64, .window = window};
      size.scale = 0.125F;
      size.dtype = DType::kBF16;
      size.method = {.kernels = AttentionKernels::kCudnn, .deterministic = deterministic};
      SCOPED_TRACE(concat("window ", window, ", deterministic ", deterministic));
      const bool differs = is_wrong && window < size.t;
      if (has_cudnn && !differs) {
        EXPECT_THAT(describe_attention(size), StartsWith("cuDNN"));
        continue;
      }
      EXPECT_THAT(message_of<InputError>([&] { describe_attention(size); }),
                  HasSubstr(differs ? "cuDNN's attention differs from the portable kernels' in "
                                    : "has no cuDNN attention"));
      size.method.kernels = AttentionKernels::kAuto;
      if (attention_kernels_of_environment() != AttentionKernels::kAuto) continue;
      EXPECT_THAT(describe_attention(size), StartsWith("own kernels on tensor cores"));
      EXPECT_EQ(attention_is_faster_in_any_order(size), false);
    }
}

TEST(Attention, AWindowOffByOneIsDetected) {
  for (const Index window : {0, 1, 5, 64, 128}) {
    const AttentionCase c{.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 64, .window = window};
    SCOPED_TRACE(testing::PrintToString(c));
    const AttentionProblem p(c);
    p.run();
    for (const Index wrong : {window - 1, window + 1}) {
      if (wrong < 0) continue;
      const AttentionReference other(p, wrong);
      const double tolerance = other.tolerance(c);
      EXPECT_GT(attention_distance(p.out, other.out), tolerance)
          << "out, as if window were " << wrong;
      EXPECT_GT(attention_distance(p.lse, other.lse), tolerance)
          << "lse, as if window were " << wrong;
      EXPECT_GT(attention_distance(p.dq, other.dq), tolerance) << "dq, as if window were " << wrong;
      EXPECT_GT(attention_distance(p.dk, other.dk), tolerance) << "dk, as if window were " << wrong;
      EXPECT_GT(attention_distance(p.dv, other.dv), tolerance) << "dv, as if window were " << wrong;
    }
  }
}

// Changing a token influences exactly the queries that see it, and changing the gradient of a query
// exactly the keys that it sees; all other results keep their bits.
TEST(Attention, OnlyVisiblePairsInfluenceEachOther) {
  for (const Index window : {3, 70, 200})
    for (const Index token : {0, 1, 63, 64, 100, 129}) {
      SCOPED_TRACE("window " + std::to_string(window) + ", token " + std::to_string(token));
      const AttentionCase c{.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 16, .window = window};
      const AttentionProblem before(c);
      before.run();
      const AttentionProblem after(c);
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
      const AttentionCase c{.b = 1, .t = 130, .heads = 1, .kv_heads = 1, .h = 16, .window = window};
      const AttentionProblem p(c);
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

// rotary_norm_backward (kernels/rotary.h) of a gradient, with its magnitudes.
AttentionReference::Result rotary_backward(const AttentionReference::Result& dy,
                                           const HostTensor& y, const HostTensor& rstd,
                                           const HostTensor& cos, const HostTensor& sin,
                                           double scale) {
  AttentionReference::Result out(y);
  const Shape& shape = y.tensor().shape;
  const auto h = static_cast<std::size_t>(shape[3]), half = h / 2;
  const std::vector<double> ys = y.doubles(), rstds = rstd.doubles(), c = cos.doubles(),
                            s = sin.doubles();
  for (std::size_t row = 0; row < rstds.size(); ++row) {
    const std::size_t at = row * h;
    const auto t = row / static_cast<std::size_t>(shape[2]) % static_cast<std::size_t>(shape[1]);
    double mean = 0, mean_magnitude = 0;
    for (std::size_t d = at; d < at + h; ++d) {
      mean += dy.value[d] * ys[d] / (scale * scale * static_cast<double>(h));
      mean_magnitude +=
          dy.magnitude[d] * std::abs(ys[d]) / (scale * scale * static_cast<double>(h));
    }
    const double factor = scale * rstds[row];
    const auto r = [&](std::size_t d) { return factor * (dy.value[d] - ys[d] * mean); };
    const auto magnitude = [&](std::size_t d) {
      return factor * (dy.magnitude[d] + std::abs(ys[d]) * mean_magnitude);
    };
    for (std::size_t j = 0; j < half; ++j) {
      const std::size_t one = at + j, two = one + half;
      const double of_c = c[t * half + j], of_s = s[t * half + j];
      out.value[one] = r(one) * of_c - r(two) * of_s;
      out.value[two] = r(one) * of_s + r(two) * of_c;
      out.magnitude[one] = magnitude(one) * std::abs(of_c) + magnitude(two) * std::abs(of_s);
      out.magnitude[two] = magnitude(one) * std::abs(of_s) + magnitude(two) * std::abs(of_c);
    }
  }
  return out;
}

TEST(AttentionBackward, PropagatesThroughRotaryNorm) {
  KernelStream stream;
  const auto positive = [](const Shape& shape, const char* name) {
    HostTensor out = random_tensor(shape, name);
    for (float& x : out.values())
      x = 0.5F + std::abs(x);
    return out;
  };
  std::vector<AttentionCase> cases{
      {.b = 2, .t = 130, .heads = 2, .kv_heads = 1, .h = 128, .window = 130},
      {.b = 1, .t = 257, .heads = 2, .kv_heads = 2, .h = 64, .window = 70},
      {.b = 2, .t = 200, .heads = 1, .kv_heads = 1, .h = 128, .window = 200, .documents = {90, 50}},
      {.b = 1, .t = 70, .heads = 4, .kv_heads = 2, .h = 40, .window = 70}};
  if (test::kThreadSanitizer) cases.resize(1);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const AttentionCase& c : cases) {
      SCOPED_TRACE(testing::PrintToString(c));
      AttentionProblem p(c, dtype);
      const HostTensor q_rstd = positive({c.b, c.t, c.heads}, "q_rstd"),
                       k_rstd = positive({c.b, c.t, c.kv_heads}, "k_rstd"),
                       cos({c.t + 3, c.h / 2}, dtype), sin({c.t + 3, c.h / 2}, dtype);
      rotary_table(stream, {.cos = cos, .sin = sin});
      constexpr float kScale = 1.2F;
      p.rotary = {.q_rstd = q_rstd, .k_rstd = k_rstd, .cos = cos, .sin = sin, .scale = kScale};
      p.run();
      const AttentionReference want(p, c.window);
      AttentionTolerance within(want, c, dtype);
      // The sums of a row, and one more rounding if the gradient is stored in between.
      within.gradient =
          (within.gradient + worst_case(2 * c.h + 20)) * (1 + within.unit) + within.unit;
      const auto expect = [&](const HostTensor& got, const AttentionReference::Result& gradient,
                              const HostTensor& y, const HostTensor& rstd) {
        EXPECT_LT(attention_distance(got, rotary_backward(gradient, y, rstd, cos, sin, kScale)),
                  within.gradient);
      };
      expect(p.dq, want.dq, p.q, q_rstd);
      expect(p.dk, want.dk, p.k, k_rstd);
      EXPECT_LT(attention_distance(p.dv, want.dv), within.out);
    }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  expect_matches(
      {.b = 1, .t = 130, .heads = 2, .kv_heads = 1, .h = 64, .window = 90, .score_size = 100.0F});
  const AttentionProblem p(
      {.b = 1, .t = 130, .heads = 2, .kv_heads = 1, .h = 64, .window = 90, .score_size = 1e6F});
  p.run();
  const std::span<const float> v = p.v.values();
  const float highest = *std::ranges::max_element(v), lowest = *std::ranges::min_element(v);
  for (const float x : p.out.values())
    EXPECT_TRUE(lowest <= x && x <= highest) << x;  // an average of values
  for (const HostTensor* x : {&p.lse, &p.dq, &p.dk, &p.dv})
    EXPECT_TRUE(std::ranges::all_of(x->values(), [](float y) { return std::isfinite(y); }));
}

TEST(Attention, PropagatesNaN) {
  const AttentionProblem p({.b = 1, .t = 70, .heads = 1, .kv_heads = 1, .h = 16, .window = 70});
  rows_of(p.q, 66)[3] = std::numeric_limits<float>::quiet_NaN();
  p.run();
  for (const float x : rows_of(p.out, 66))
    EXPECT_TRUE(std::isnan(x));
  EXPECT_TRUE(std::isnan(p.lse.values()[66]));
  for (const float x : rows_of(p.dq, 66))
    EXPECT_TRUE(std::isnan(x));
}

TEST(Attention, SameBitsEveryTime) {
  const AttentionCase c{.b = 2, .t = 130, .heads = 4, .kv_heads = 2, .h = 40, .window = 90};
  const AttentionProblem first(c), second(c);
  first.run();
  second.run();
  EXPECT_TRUE(same_bits(first.out.values(), second.out.values()));
  EXPECT_TRUE(same_bits(first.lse.values(), second.lse.values()));
  EXPECT_TRUE(same_bits(first.dq.values(), second.dq.values()));
  EXPECT_TRUE(same_bits(first.dk.values(), second.dk.values()));
  EXPECT_TRUE(same_bits(first.dv.values(), second.dv.values()));
}

TEST(Attention, StaysWithinItsWorkspaceAtAnyAddress) {
  for (const Index h : {17, 64})
    for (const Index offset : {0, 1, 7, 15}) {
      const AttentionProblem p({.b = 1, .t = 70, .heads = 1, .kv_heads = 1, .h = h, .window = 70});
      p.run();
      const Index length = p.workspace.tensor().numel();
      constexpr Index kGuard = 64;
      const HostTensor memory({offset + length + kGuard});
      std::ranges::fill(memory.values(), 1234.5F);
      AttentionArgs forward = p.forward_args();
      AttentionBackwardArgs backward = p.backward_args();
      forward.workspace = backward.workspace = memory.tensor().elements(offset, length);
      const HostTensor out = p.out.copy(), dk = p.dk.copy();
      KernelStream stream;
      attention(stream, forward);
      attention_backward(stream, backward);
      EXPECT_TRUE(same_bits(out.values(), p.out.values()));
      EXPECT_TRUE(same_bits(dk.values(), p.dk.values()));
      const std::span<float> all = memory.values();
      const auto untouched = [](float x) { return x == 1234.5F; };
      EXPECT_TRUE(std::ranges::all_of(all.first(static_cast<std::size_t>(offset)), untouched));
      EXPECT_TRUE(std::ranges::all_of(all.last(static_cast<std::size_t>(kGuard)), untouched));
      if (!stream.is_host()) continue;  // devices need less than the host
      // The bound is tight: some of the last 64 elements are used.
      EXPECT_FALSE(std::ranges::all_of(
          all.subspan(static_cast<std::size_t>(offset + length - kGuard), kGuard), untouched));
    }
}

TEST(Attention, RefusesMismatchedArguments) {
  const AttentionProblem p({.b = 1, .t = 8, .heads = 4, .kv_heads = 2, .h = 16, .window = 8});
  KernelStream stream;
  const auto forward_error = [&](const auto& change) {
    AttentionArgs args = p.forward_args();
    change(args);
    return error_of([&] { attention(stream, args); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(forward_error([](AttentionArgs&) {}), "no error");
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.window = -1; }), HasSubstr("window is -1"));
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
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.k.dtype = DType::kBF16; }),
              HasSubstr("k is bf16, expected fp32"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) { a.out = {}; }), HasSubstr("out is missing"));
  EXPECT_THAT(forward_error([](AttentionArgs& a) {
                a.q.shape = a.out.shape = {1, 8, 3, 16};
                a.lse.shape = {1, 3, 8};
              }),
              HasSubstr("3 query heads cannot share 2 key-value heads"));
  AttentionBackwardArgs backward = p.backward_args();
  backward.workspace = backward.workspace.elements(0, 31);  // the minimum is one per query and head
  EXPECT_THAT(error_of([&] { attention_backward(stream, backward); }),
              HasSubstr("attention_workspace"));
  backward = p.backward_args();
  backward.dk = backward.dk.view({1, 8, 32});
  EXPECT_THAT(error_of([&] { attention_backward(stream, backward); }),
              HasSubstr("dk is (1, 8, 32), expected (1, 8, 2, 16)"));
  backward = p.backward_args();
  const HostTensor angles({8, 8}), rstd({1, 8, 4});
  backward.rotary = {.q_rstd = rstd, .k_rstd = rstd, .cos = angles, .sin = angles};
  EXPECT_THAT(error_of([&] { attention_backward(stream, backward); }),
              HasSubstr("rstd is (1, 8, 4), expected (1, 8, 2)"));
  const HostTensor wide({1, 8, 2, 257});
  AttentionArgs args = p.forward_args();
  args.out = args.q;
  EXPECT_THAT(error_of([&] { attention(stream, args); }), HasSubstr("out overlaps q"));
  args.q = args.k = args.v = args.out = wide;
  EXPECT_THAT(error_of([&] { attention(stream, args); }), HasSubstr("head size 257"));
}

}  // namespace
}  // namespace muo::test
