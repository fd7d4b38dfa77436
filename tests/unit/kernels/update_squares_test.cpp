#include "kernels/update_squares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/adamw.h"
#include "kernels/muon.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/muon_cases.h"
#include "support/split_tensor.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "support/unaligned.h"

namespace muo::test {
namespace {

HostTensor squares_of(std::int64_t pieces, std::int64_t piece) {
  return HostTensor({pieces, commit_parts(piece), kUpdateSquares}, DType::kF64);
}

// The reference for elements [begin, end).
UpdateSquares reference(const std::vector<double>& before, const std::vector<double>& after,
                        const std::vector<double>& u, std::size_t begin, std::size_t end) {
  UpdateSquares out;
  for (std::size_t i = begin; i < end; ++i) {
    out.change += (after[i] - before[i]) * (after[i] - before[i]);
    out.weight += after[i] * after[i];
    if (!u.empty()) out.u += u[i] * u[i];
  }
  return out;
}

void expect_reference(const HostTensor& squares, const std::vector<double>& before,
                      const std::vector<double>& after, const std::vector<double>& u,
                      double change_error) {
  const auto pieces = static_cast<std::size_t>(squares.tensor().shape[0]);
  const auto* got = reinterpret_cast<const UpdateSquares*>(squares.values<double>().data());
  const std::size_t piece = before.size() / pieces;
  for (std::size_t p = 0; p < pieces; ++p)
    for (std::size_t begin = p * piece; begin < (p + 1) * piece; begin += kCommitPart, ++got) {
      const UpdateSquares want =
          reference(before, after, u, begin, std::min((p + 1) * piece, begin + kCommitPart));
      const double sums = worst_case(kCommitPart, kUnitF64);
      EXPECT_GT(want.change, 0.0);
      EXPECT_NEAR(got->change, want.change, want.change * (change_error + sums)) << begin;
      EXPECT_NEAR(got->weight, want.weight, want.weight * (change_error + sums)) << begin;
      EXPECT_NEAR(got->u, want.u, want.u * sums) << begin;
    }
}

// One piece that ends within a part and within a vector, and equal pieces that end within a part.
struct Cut {
  std::int64_t pieces, piece;
};
class SquaresOfACommit : public ::testing::TestWithParam<Cut> {
 protected:
  const std::int64_t n = GetParam().pieces * GetParam().piece;
  HostTensor weight = random_tensor({n}, "weight");
  HostTensor replica{{n}, DType::kBF16};
  HostTensor state = random_tensor({n}, "state", 0.1F);
  HostTensor u = random_tensor({n}, "u");
  HostTensor grad = random_tensor({n}, "grad");
  HostTensor squares = squares_of(GetParam().pieces, GetParam().piece);
};
INSTANTIATE_TEST_SUITE_P(Cuts, SquaresOfACommit,
                         ::testing::Values(Cut{1, 5003}, Cut{3, 2056}, Cut{5, 37}),
                         [](const auto& cut) { return concat("of", cut.param.piece); });

TEST_P(SquaresOfACommit, OfMuonAreThoseOfDouble) {
  const std::vector<double> before = weight.doubles();
  KernelStream stream;
  const auto commit = [&](const Tensor& master, const Tensor& copy, int committed) {
    muon_commit(stream, {.weight = master,
                         .replica = copy,
                         .momentum = state.copy(),
                         .u = u,
                         .grad = grad,
                         .scalars = MuonScalars(committed).tensor,
                         .rate = muon_rate(24, 16),
                         .squares = squares});
  };
  const SplitTensor split(weight);
  const std::vector<double> split_before = split.joined().doubles();
  const Unaligned unaligned(weight);
  commit(weight, replica, 1);
  expect_reference(squares, before, weight.doubles(), u.doubles(), worst_case(2));
  commit(unaligned, {}, 1);
  EXPECT_EQ(unaligned.doubles(), weight.doubles());
  expect_reference(squares, before, weight.doubles(), u.doubles(), worst_case(2));
  // Squares are those of the values before splitting, which in case of a tie differ by a unit in
  // the last place; the change is a hundredth of the weight.
  commit(split.lower, split.upper, 1);
  expect_reference(squares, split_before, split.joined().doubles(), u.doubles(), worst_case(400));
  commit(weight, replica, 0);
  EXPECT_THAT(squares.values<double>(), ::testing::Each(0.0));
}

TEST_P(SquaresOfACommit, OfAdamWAreThoseOfDouble) {
  HostTensor scalars({static_cast<std::int64_t>(sizeof(StepScalars))}, DType::kBytes);
  auto& s = *scalars.tensor().as_struct<StepScalars>();
  s = StepScalars();
  s.commit = 1;
  s.adam[1] = {0.1F, 0.8F, 0.995F, 1e-10F, 0.01F, 0.2F, 0.005F};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    HostTensor w = weight.copy();
    HostTensor v({n});
    std::ranges::fill(v.values(), 0.04F);
    KernelStream stream;
    adamw(stream, {.weight = w,
                   .replica = replica,
                   .m = state.rounded(dtype),
                   .v = v.rounded(dtype),
                   .grad = grad,
                   .scalars = scalars,
                   .group = 1,
                   .squares = squares});
    expect_reference(squares, weight.doubles(), w.doubles(), {}, worst_case(2));
  }
}

TEST(UpdateSquares, RefusesOtherNumbersOfParts) {
  const HostTensor weight = random_tensor({5003}, "weight");
  const auto refused = [&](const HostTensor& squares) {
    return message_of<Error>([&] {
      KernelStream stream;
      muon_commit(stream, {.weight = weight,
                           .momentum = weight.copy(),
                           .u = weight.copy(),
                           .grad = weight.copy(),
                           .scalars = MuonScalars().tensor,
                           .squares = squares});
    });
  };
  EXPECT_THAT(refused(squares_of(1, 2048)),
              ::testing::HasSubstr("squares is (1, 1, 3), expected (1, 3, 3)"));
  EXPECT_THAT(refused(squares_of(2, 2501)),
              ::testing::HasSubstr("5003 elements cannot be divided into 2 equal pieces"));
}

// More pieces than one launch on a GPU takes, and parameters with several pieces. Values are
// integers, so that sums do not depend on the order.
TEST(UpdateSquares, AreAddedUpByParameter) {
  std::vector<UpdatePiece> pieces;
  std::int64_t parts = 0;
  constexpr std::int32_t kParams = 150;
  for (std::int32_t param = 0; param < kParams; ++param)
    for (int piece = 0; piece <= param % 4; ++piece) {
      const std::int32_t count = 1 + (param * 7 + piece) % 300;
      pieces.push_back({.param = kParams - 1 - param, .parts = count, .first = parts});
      parts += count;
    }
  HostTensor squares({parts, kUpdateSquares}, DType::kF64);
  for (std::size_t i = 0; i < squares.values<double>().size(); ++i)
    squares.values<double>()[i] = static_cast<double>(i * 37 % 1009);
  HostTensor sums({kParams + 1, kUpdateSquares}, DType::kF64);
  std::ranges::fill(sums.values<double>(), 5.0);
  std::vector<double> want(sums.values<double>().begin(), sums.values<double>().end());
  for (const UpdatePiece& piece : pieces)
    for (std::int64_t i = piece.first; i < piece.first + piece.parts; ++i)
      for (std::int64_t s = 0; s < kUpdateSquares; ++s)
        want[static_cast<std::size_t>(piece.param * kUpdateSquares + s)] +=
            squares.values<double>()[static_cast<std::size_t>(i * kUpdateSquares + s)];
  KernelStream stream;
  sum_update_squares(stream, {.sums = sums, .squares = squares, .pieces = pieces});
  EXPECT_TRUE(std::ranges::equal(sums.values<double>(), want));
}

}  // namespace
}  // namespace muo::test
