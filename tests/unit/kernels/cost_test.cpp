// Compares the costs that operations report with costs that were counted by hand.
#include <gtest/gtest.h>

#include <string>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gate.h"
#include "kernels/gemm.h"
#include "kernels/symmetric_product.h"
#include "runtime/host/host_device.h"
#include "support/attention_reference.h"

namespace muo {
namespace {

using test::AttentionProblem;
using test::HostTensor;

template <class Submit>
Cost cost_of(const Submit& submit) {
  HostDevice device(0);
  const auto stream = device.make_stream(StreamPriority::kNormal);
  const auto graph = stream->capture([&] { submit(*stream); });
  EXPECT_EQ(graph->trace().nodes.size(), 1U);
  return graph->trace().nodes.front().cost;
}

TEST(Cost, OfAProduct) {
  const HostTensor d({3, 5}), a({7, 3}), b({5, 7});
  const Cost one = cost_of([&](Stream& stream) {
    gemm(stream,
         {.d = d, .c = d, .a = a, .b = b, .beta = 1.0F, .transpose_a = true, .transpose_b = true});
  });
  EXPECT_EQ(one.flops, 2 * 3 * 5 * 7);
  EXPECT_EQ(one.shape, "TT 3x7x5");
  const HostTensor many({4, 3, 5}), left({4, 3, 2}), right({4, 2, 5});
  const Cost batch =
      cost_of([&](Stream& stream) { gemm(stream, {.d = many, .a = left, .b = right}); });
  EXPECT_EQ(batch.flops, 4 * 2 * 3 * 5 * 2);
  EXPECT_EQ(batch.shape, "NN 3x2x5 x4");
}

TEST(Cost, OfASymmetricProductIsWhatIsComputed) {
  const HostTensor d({2, 200, 200}), a({2, 200, 30}), square({2, 200, 200});
  const Cost gram = cost_of([&](Stream& stream) { symmetric_product(stream, {.d = d, .a = a}); });
  // Blocks of 96 rows, each computed up to the column of its last row.
  const double elements = 96 * 96 + 96 * 192 + 8 * 200;
  EXPECT_EQ(gram.flops, 2 * (2.0 * 30 * elements));
  EXPECT_EQ(gram.shape, "NT 200x30x200 x2");
  const Cost product = cost_of(
      [&](Stream& stream) { symmetric_product(stream, {.d = d, .a = square, .b = square}); });
  EXPECT_EQ(product.flops, 2 * (2.0 * 200 * elements));
  EXPECT_EQ(product.shape, "NN 200x200x200 x2");
}

TEST(Cost, OfAttentionIsItsVisiblePairs) {
  const std::int64_t b = 2, t = 11, heads = 4, h = 8;
  for (const std::int64_t window : {0, 3, 10, 500}) {
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < t; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        pairs += i - j <= window ? 1 : 0;
    const AttentionProblem p({b, t, heads, 2, h, window});
    const Cost forward = cost_of([&](Stream& stream) { attention(stream, p.forward_args()); });
    const Cost backward =
        cost_of([&](Stream& stream) { attention_backward(stream, p.backward_args()); });
    EXPECT_EQ(forward.flops, static_cast<double>(4 * h * b * heads * pairs)) << window;
    EXPECT_EQ(backward.flops, static_cast<double>(10 * h * b * heads * pairs)) << window;
    EXPECT_EQ(forward.shape, window >= 10 ? "2x11x4x8" : "2x11x4x8 w" + std::to_string(window));
  }
}

TEST(Cost, OfATableCountsTheRowsOfTheTokens) {
  const HostTensor table({100, 6}), y({5, 6}), tokens({5}, DType::kI32), x({5, 9});
  const HostTensor gates({5, 2}), weight({2, 3});
  const HostTensor groups({token_groups_size(5, 100)}, DType::kI32);
  EXPECT_EQ(
      cost_of([&](Stream& s) { embedding(s, {.y = y, .table = table, .tokens = tokens}); }).bytes,
      4 * (2 * 30 + 5));
  const auto backward = [&](bool accumulate) {
    return cost_of([&](Stream& s) {
             embedding_backward(s, {.dtable = table,
                                    .dy = y,
                                    .tokens = tokens,
                                    .groups = groups,
                                    .accumulate = accumulate});
           })
        .bytes;
  };
  EXPECT_EQ(backward(true), 4 * (30 + 2 * 30 + 5));
  EXPECT_EQ(backward(false), 4 * (30 + 2 * 30 + 5 + 600));  // all rows are zeroed
  EXPECT_EQ(
      cost_of([&](Stream& s) {
        value_embedding(
            s,
            {.v = y, .gates = gates, .x = x, .weight = weight, .table = table, .tokens = tokens});
      }).bytes,
      4 * (3 * 30 + 10 + 5 + 5 * 3));
}

}  // namespace
}  // namespace muo
