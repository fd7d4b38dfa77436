#include "optim/update_groups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/muon.h"
#include "optim/optimizer_options.h"

namespace muo::test {
namespace {

TEST(UpdateGroups, TableOfNanochat) {
  struct Row {  // NOLINT(clang-analyzer-optin.performance.Padding): columns of the table
    ParamRole role;
    double lr;  // times sqrt(B / 2^19) and, with `width`, sqrt(768 / n_embd)
    bool batch, width;
    double beta1, beta2, weight_decay;
  };
  const Row rows[] = {
      {ParamRole::kUnembedding, 0.008, true, true, 0.8, 0.96, 0.01},
      {ParamRole::kEmbedding, 0.3, true, true, 0.8, 0.995, 0.001},
      {ParamRole::kValueEmbedding, 0.15, true, true, 0.8, 0.995, 0.01},
      {ParamRole::kResidLambda, 0.005, true, false, 0.8, 0.95, 0.05},
      {ParamRole::kX0Lambda, 0.5, true, false, 0.96, 0.95, 0.0},
      {ParamRole::kSmear, 0.2, false, false, 0.8, 0.95, 0.0},
  };
  const optim::RateScales scales = {.batch_lr = std::sqrt(0.5),  // for 2^18 tokens
                                    .width_lr = std::sqrt(0.5),  // for width 1536
                                    .weight_decay = 0.5};
  const HyperParameters hyper = optim::make_hyper_parameters({}, {}, 1, scales);
  for (const Row& row : rows) {
    const optim::UpdateGroup group = optim::update_group(row.role);
    ASSERT_EQ(group.rule, optim::UpdateRule::kAdamW);
    const AdamHyper& adam = hyper.adam[group.adam_group];
    EXPECT_DOUBLE_EQ(adam.lr,
                     row.lr * (row.batch ? std::sqrt(0.5) : 1) * (row.width ? std::sqrt(0.5) : 1));
    EXPECT_EQ(adam.beta1, row.beta1);
    EXPECT_EQ(adam.beta2, row.beta2);
    EXPECT_EQ(adam.weight_decay, row.weight_decay);
    EXPECT_EQ(adam.eps, 1e-10);
  }
  EXPECT_EQ(optim::update_group(ParamRole::kMatrix).rule, optim::UpdateRule::kMuon);
  EXPECT_DOUBLE_EQ(hyper.matrix_lr, 0.02 * std::sqrt(0.5));  // independent of width
  EXPECT_DOUBLE_EQ(hyper.muon_weight_decay, 0.14);
  EXPECT_EQ(hyper.muon_beta2, 0.9);
}

TEST(UpdateGroups, TallMatricesLearnFaster) {
  EXPECT_EQ(muon_rate(3072, 768), 2.0);
  EXPECT_EQ(muon_rate(768, 3072), 1.0);
  EXPECT_EQ(muon_rate(768, 768), 1.0);
  EXPECT_NEAR(muon_rate(16, 12), 1.155, 0.5e-3);  // the gates of d32, printed to three decimals
}

}  // namespace
}  // namespace muo::test
