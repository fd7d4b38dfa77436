#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "support/golden_model.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::GoldenModel;

// fp32 against fp64: some hundred units of roundoff, through up to four layers.
constexpr double kBound = 1e-5;
constexpr double kTermBound = 1e-6;  // per term of a sum: some ten units of roundoff

// One file of tests/golden: our own for the plain GPT, or nanochat's with all extras.
class GptGolden : public testing::TestWithParam<const char*> {
 protected:
  // Compares every gradient with `factor` times the reference, norm-wise. The gradient of a lambda
  // is one sum over the whole residual stream, which may cancel: part of its error is relative to
  // the terms, whose magnitudes are in the file.
  void expect_gradients(double factor) const {
    for (std::size_t i = 0; i < model_.specs().size(); ++i) {
      const std::string& name = model_.specs()[i].name;
      const std::vector<double> want = model_.golden().doubles("grad/" + name);
      ASSERT_GT(test::frobenius<double>(want), 0) << name;
      double bound = kBound * test::frobenius<double>(want);
      if (model_.golden().has("terms/" + name))
        bound += kTermBound * test::frobenius<double>(model_.golden().doubles("terms/" + name));
      std::vector<double> difference(want.size());
      for (std::size_t j = 0; j < want.size(); ++j)
        difference[j] = static_cast<double>(model_.gradient(i).as<float>()[j]) - factor * want[j];
      EXPECT_LT(test::frobenius<double>(difference), factor * bound) << name;
    }
  }
  void expect_loss(const model::Gpt& gpt) const {
    const double want = model_.golden().doubles("loss").at(0);
    EXPECT_LT(std::abs(model_.mean_loss(gpt) - want), kBound * want);
  }

  GoldenModel model_{GetParam()};
};

TEST_P(GptGolden, EveryWeightAndGradientOfTheFileIsAParameter) {
  std::set<std::string> names;
  for (const ParamSpec& spec : model_.specs())
    names.insert({"weight/" + spec.name, "grad/" + spec.name, "terms/" + spec.name});
  for (const std::string& name : model_.golden().names())
    EXPECT_TRUE(name.find('/') == std::string::npos || names.contains(name)) << name;
}

TEST_P(GptGolden, LossAndEveryGradientAgreeWithTheReference) {
  const model::Gpt gpt = model_.make_gpt(true);
  model_.run(gpt, 1.0F, false);
  expect_loss(gpt);
  expect_gradients(1.0);
}

TEST_P(GptGolden, GradientsAccumulateOverMicroSteps) {
  const model::Gpt gpt = model_.make_gpt(true);
  model_.run(gpt, 0.5F, false);
  model_.run(gpt, 0.5F, true);
  model_.run(gpt, 0.5F, true);
  expect_gradients(1.5);
}

TEST_P(GptGolden, LogitsAgreeWithTheReferenceWithAndWithoutBackward) {
  const std::vector<double> want = model_.golden().doubles("logits");
  for (const bool keep : {true, false}) {
    const model::Gpt gpt = model_.make_gpt(keep);
    model_.evaluate(gpt);
    EXPECT_LT(test::relative_error(model_.logits(gpt), want), kBound);
    expect_loss(gpt);
  }
}

TEST_P(GptGolden, EveryGradientIsAnnouncedOnceInTheOrderOfReadiness) {
  const model::Gpt gpt = model_.make_gpt(true);
  std::vector<int> order;
  model_.run(gpt, 1.0F, false,
             [&](std::size_t param) { order.push_back(model_.specs()[param].ready); });
  ASSERT_EQ(order.size(), model_.specs().size());
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), order.size());
}

// With chunks, the gradient of lm_head is a sum over them.
TEST(HeadChunks, ChangeRoundingOnly) {
  std::vector<std::vector<double>> gradients;
  std::vector<double> losses;
  for (const std::int64_t bytes : {model::kHostHeadChunk, std::int64_t{1}}) {
    GoldenModel model("nanochat_odd", [&](model::GptConfig& c) { c.head_chunk_bytes = bytes; });
    const model::Gpt gpt = model.make_gpt(true);
    model.run(gpt, 1.0F, false);
    losses.push_back(model.mean_loss(gpt));
    const std::int64_t rows = gpt.row_losses().numel();
    EXPECT_EQ(model::head_chunk_rows(model.config(), rows) < rows, bytes == 1);
    std::vector<double>& all = gradients.emplace_back();
    for (std::size_t i = 0; i < model.specs().size(); ++i)
      for (std::int64_t j = 0; j < model.gradient(i).numel(); ++j)
        all.push_back(static_cast<double>(model.gradient(i).as<float>()[j]));
  }
  EXPECT_LT(std::abs(losses[1] - losses[0]), kBound * losses[0]);
  EXPECT_LT(test::relative_error(gradients[1], gradients[0]), kBound);
  EXPECT_GT(test::relative_error(gradients[1], gradients[0]), 0) << "the chunks were the same";
}

INSTANTIATE_TEST_SUITE_P(All, GptGolden,
                         testing::Values("gpt_plain", "gpt_gqa", "gpt_window", "gpt_softcap",
                                         "nanochat_odd", "nanochat_window", "nanochat_single"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace muo
