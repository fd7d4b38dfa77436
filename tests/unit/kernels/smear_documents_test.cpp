// Smear within documents: SmearArgs::starts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/gate.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;

constexpr std::size_t kSmearC = 27;
constexpr std::size_t kSmearG = 24;

// Results of both directions for positions [from, to) of a row, with documents that
// begin at `starts`.
struct SmearedRow {
  std::vector<double> y, gates, dx, dweight, dlambda;

  SmearedRow(const HostTensor& x, const HostTensor& dy, std::size_t from, std::size_t to,
             const std::vector<std::int32_t>& starts) {
    test::KernelStream stream;
    const auto t = static_cast<std::int64_t>(to - from);
    const Shape shape{1, t, kSmearC};
    const auto part = [&](const HostTensor& of) {
      return of.tensor()
          .elements(static_cast<std::int64_t>(from * kSmearC), shape.numel())
          .view(shape);
    };
    const HostTensor weight = random_tensor({1, kSmearG}, "weight", 0.3F);
    const HostTensor lambda({1}, std::vector<float>{0.7F});
    const HostTensor y_out(shape), gates_out({1, t}), dx_out(shape), dweight_out({1, kSmearG}),
        dlambda_out({1});
    const HostTensor begin = starts.empty() ? HostTensor() : HostTensor({1, t}, starts);
    smear(stream, {.y = y_out,
                   .gates = gates_out,
                   .x = part(x),
                   .weight = weight,
                   .lambda = lambda,
                   .starts = begin});
    smear_backward(stream, {.dx = dx_out,
                            .dweight = dweight_out,
                            .dlambda = dlambda_out,
                            .dy = part(dy),
                            .x = part(x),
                            .gates = gates_out,
                            .weight = weight,
                            .lambda = lambda});
    y = y_out.doubles();
    gates = gates_out.doubles();
    dx = dx_out.doubles();
    dweight = dweight_out.doubles();
    dlambda = dlambda_out.doubles();
  }
  void append(const SmearedRow& next) {
    y.insert(y.end(), next.y.begin(), next.y.end());
    gates.insert(gates.end(), next.gates.begin(), next.gates.end());
    dx.insert(dx.end(), next.dx.begin(), next.dx.end());
    std::ranges::transform(dweight, next.dweight, dweight.begin(), std::plus<>());
    dlambda[0] += next.dlambda[0];
  }
};

TEST(Smear, TreatsEachDocumentSeparately) {
  const std::vector<std::int32_t> starts = {0, 0, 2, 3, 3, 3, 6};
  const HostTensor x = random_tensor({1, 7, kSmearC}, "x"),
                   dy = random_tensor({1, 7, kSmearC}, "dy");
  const SmearedRow got(x, dy, 0, 7, starts);
  SmearedRow want(x, dy, 0, 2, {});
  for (const auto& [from, to] : {std::pair{2U, 3U}, {3U, 6U}, {6U, 7U}})
    want.append({x, dy, from, to, {}});
  EXPECT_EQ(got.y, want.y);
  EXPECT_EQ(got.gates, want.gates);
  EXPECT_EQ(got.dx, want.dx);
  // Sums over rows are fp64, and the sum of each document is rounded once.
  EXPECT_LE(test::relative_error<double>(got.dweight, want.dweight), test::worst_case(8));
  EXPECT_NEAR(got.dlambda[0], want.dlambda[0], test::worst_case(8) * 7 * kSmearC);
  const SmearedRow one(x, dy, 0, 7, {0, 0, 0, 0, 0, 0, 0}), none(x, dy, 0, 7, {});
  EXPECT_EQ(one.y, none.y);
  EXPECT_NE(got.y, none.y);
}

TEST(Smear, APositionThatBeginsADocumentTakesNothingFromThePrevious) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({3, 1, kSmearC}, "x");
  const HostTensor weight = random_tensor({1, kSmearG}, "weight", 0.3F);
  const HostTensor lambda({1}, std::vector<float>{0.7F});
  const HostTensor previous = random_tensor({3, kSmearC}, "previous");
  const HostTensor positions({3}, std::vector{0, 5, 5}), starts({3, 1}, std::vector{0, 5, 4});
  const HostTensor y({3, 1, kSmearC}), gates({3, 1});
  smear(stream, {.y = y,
                 .gates = gates,
                 .x = x,
                 .weight = weight,
                 .lambda = lambda,
                 .previous = previous,
                 .positions = positions,
                 .starts = starts});
  const std::vector<double> got = y.doubles(), from = x.doubles();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 2 * kSmearC, from.begin()));
  EXPECT_FALSE(std::equal(got.begin() + 2 * kSmearC, got.end(), from.begin() + 2 * kSmearC));
  EXPECT_EQ(gates.values()[0], 0.0F);
  EXPECT_EQ(gates.values()[1], 0.0F);
  EXPECT_NE(gates.values()[2], 0.0F);
}

}  // namespace
}  // namespace muo
