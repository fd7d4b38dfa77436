#include "trainer/train/update_sizes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

namespace muo::trainer {
namespace {

// Two layers of matrices, an embedding and a scalar.
struct Updated {
  std::vector<ParamSpec> params = {
      {.name = "wte", .shape = {64, 2}, .used_rows = 5, .role = ParamRole::kEmbedding},
      {.name = "h.0.q", .shape = {2, 3}, .layer = 0},
      {.name = "h.0.k", .shape = {2, 4}, .layer = 0},
      {.name = "lambdas", .shape = {2}, .role = ParamRole::kResidLambda},
      {.name = "h.1.q", .shape = {2, 3}, .layer = 1}};
  std::vector<UpdateSquares> squares = {{.change = 40, .weight = 0, .u = 7},
                                        {.change = 6, .weight = 24, .u = 54},
                                        {.change = 50, .weight = 200, .u = 72},
                                        {.change = 18, .weight = 2, .u = 0},
                                        {.change = 24, .weight = 6, .u = 600}};
};

void expect(const UpdateSize& got, double rms, std::optional<double> ratio,
            std::optional<double> u_rms) {
  EXPECT_DOUBLE_EQ(got.rms, rms);
  EXPECT_EQ(got.ratio, ratio);
  EXPECT_EQ(got.u_rms, u_rms);
}

TEST(UpdateSizes, CoverGroupsLayersAndMatrices) {
  const auto [params, squares] = Updated();
  const UpdateSizes sizes = update_sizes(7, params, squares, /*each_matrix=*/true);
  EXPECT_EQ(sizes.step, 7);
  ASSERT_EQ(sizes.groups.size(), 3U);
  EXPECT_EQ(sizes.groups[0].name, "wte");
  expect(sizes.groups[0].size, 2, std::nullopt, std::nullopt);  // all weights are 0
  EXPECT_FALSE(sizes.groups[0].is_scalars);
  EXPECT_EQ(sizes.groups[1].name, "matrices");
  expect(sizes.groups[1].size, 2, std::sqrt(80.0 / 230), std::sqrt(726.0 / 20));
  EXPECT_TRUE(sizes.groups[2].is_scalars);
  expect(sizes.groups[2].size, 3, 3, std::nullopt);
  ASSERT_EQ(sizes.layers.size(), 2U);
  expect(sizes.layers[0], 2, 0.5, 3);  // 56 of 14 elements
  expect(sizes.layers[1], 2, 2, 10);
  ASSERT_EQ(sizes.matrices.size(), 3U);
  EXPECT_EQ(sizes.matrices[1].first, "h.0.k");
  expect(sizes.matrices[0].second, 1, 0.5, 3);
  expect(sizes.matrices[1].second, 2.5, 0.5, 3);
  expect(sizes.matrices[2].second, 2, 2, 10);
}

TEST(UpdateSizes, OmitMatricesUnlessRequested) {
  const auto [params, squares] = Updated();
  const UpdateSizes sizes = update_sizes(7, params, squares, /*each_matrix=*/false);
  EXPECT_EQ(sizes.groups.size(), 3U);
  EXPECT_TRUE(sizes.layers.empty());
  EXPECT_TRUE(sizes.matrices.empty());
}

}  // namespace
}  // namespace muo::trainer
