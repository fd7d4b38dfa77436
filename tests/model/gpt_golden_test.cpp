#include <gtest/gtest.h>

#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "model/gpt.h"
#include "model/parameters.h"
#include "support/golden.h"
#include "support/immediate_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::Golden;
using test::HostTensor;

// Every tensor has memory of its own, filled with NaN: what is read before it is written shows.
class TestArena final : public Arena {
 public:
  Tensor tensor(const TensorSpec& spec) override {
    memory_.emplace_back(spec.shape, spec.dtype);
    if (spec.dtype == DType::kF32)
      for (float& v : memory_.back().values())
        v = std::numeric_limits<float>::quiet_NaN();
    return memory_.back();
  }

 private:
  std::vector<HostTensor> memory_;
};

GptConfig config_of(const Golden& golden) {
  GptConfig c;
  c.vocab_size = golden.metadata_integer("vocab_size");
  c.n_layer = golden.metadata_integer("n_layer");
  c.n_head = golden.metadata_integer("n_head");
  c.n_kv_head = golden.metadata_integer("n_kv_head");
  c.n_embd = golden.metadata_integer("n_embd");
  c.seq_len = golden.metadata_integer("seq_len");
  c.window_pattern = golden.metadata("window_pattern");
  c.rope_base = golden.metadata_double("rope_base");
  c.qk_scale = static_cast<float>(golden.metadata_double("qk_scale"));
  c.softcap = static_cast<float>(golden.metadata_double("softcap"));
  return c;
}

HostTensor int32_tensor(const Golden& golden, std::string_view name) {
  HostTensor out(golden.shape(name), DType::kI32);
  const std::vector<std::int64_t> values = golden.integers(name);
  for (std::size_t i = 0; i < values.size(); ++i)
    out.values<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return out;
}

// A golden file, the model of its configuration with its weights, and gradients of NaN.
class GptGolden : public testing::TestWithParam<const char*> {
 protected:
  GptGolden()
      : golden_(std::string("gpt_") + GetParam() + ".safetensors"),
        config_(config_of(golden_)),
        specs_(gpt_parameters(config_)),
        batch_(golden_.metadata_integer("batch")),
        t_(golden_.metadata_integer("t")),
        inputs_(int32_tensor(golden_, "inputs")),
        targets_(int32_tensor(golden_, "targets")) {
    check_config(config_);
    for (const ParamSpec& spec : specs_) {
      EXPECT_EQ(golden_.shape("weight/" + spec.name), spec.shape) << spec.name;
      weights_.push_back(HostTensor(spec.shape, golden_.floats("weight/" + spec.name)));
      gradients_.push_back(arena_.tensor({.name = spec.name, .shape = spec.shape}));
    }
    for (const HostTensor& weight : weights_)
      weight_views_.push_back(weight);
    rotary_ = make_rotary_tables(config_, t_, arena_);
    fill_rotary_tables(stream_, config_, rotary_);
  }

  Gpt make_gpt(bool backward) {
    return {config_, {.b = batch_, .t = t_, .backward = backward}, rotary_, "", arena_};
  }
  [[nodiscard]] double mean_loss(const Gpt& gpt) const {
    const auto n = batch_ * t_;
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i)
      sum += static_cast<double>(gpt.row_losses().as<float>()[i]);
    return sum / static_cast<double>(n);
  }
  void backward(const Gpt& gpt, float scale, bool accumulate,
                const std::function<void(std::size_t)>& ready = {}) {
    gpt.forward(stream_, weight_views_, inputs_);
    gpt.losses_and_backward(stream_, weight_views_, inputs_, targets_, scale,
                            {.gradients = gradients_, .accumulate = accumulate, .ready = ready});
  }
  // Every gradient against the reference, norm-wise.
  void expect_gradients(double factor) const {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      std::vector<double> want = golden_.doubles("grad/" + specs_[i].name);
      ASSERT_GT(test::frobenius<double>(want), 0) << specs_[i].name;
      for (double& v : want)
        v *= factor;
      const std::span<const float> got(gradients_[i].as<float>(), want.size());
      EXPECT_LT(test::relative_error<float>(got, want), kBound) << specs_[i].name;
    }
  }

  // fp32 against fp64: some hundred units of roundoff, through up to four layers.
  static constexpr double kBound = 1e-5;

  test::ImmediateStream stream_;
  TestArena arena_;
  Golden golden_;
  GptConfig config_;
  std::vector<ParamSpec> specs_;
  std::int64_t batch_, t_;
  HostTensor inputs_, targets_;
  std::vector<HostTensor> weights_;
  std::vector<Tensor> weight_views_;
  std::vector<Tensor> gradients_;
  RotaryTables rotary_;
};

TEST_P(GptGolden, LossAndEveryGradientAgreeWithTheReference) {
  const Gpt gpt = make_gpt(true);
  backward(gpt, 1.0F / static_cast<float>(batch_ * t_), false);
  const double want = golden_.doubles("loss").at(0);
  EXPECT_LT(std::abs(mean_loss(gpt) - want), kBound * want);
  expect_gradients(1.0);
}

TEST_P(GptGolden, GradientsAccumulateOverMicroSteps) {
  const Gpt gpt = make_gpt(true);
  const float scale = 0.5F / static_cast<float>(batch_ * t_);
  backward(gpt, scale, false);
  backward(gpt, scale, true);
  backward(gpt, scale, true);
  expect_gradients(1.5);
}

TEST_P(GptGolden, LogitsAgreeWithTheReferenceWithAndWithoutBackward) {
  const std::int64_t first = golden_.metadata_integer("logits_first");
  const std::vector<double> want = golden_.doubles("logits");
  for (const bool keep : {true, false}) {
    const Gpt gpt = make_gpt(keep);
    gpt.forward(stream_, weight_views_, inputs_);
    std::vector<float> got;
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t p = first; p < t_; ++p) {
        const Tensor row = gpt.logits(stream_, weight_views_, b * t_ + p, b * t_ + p + 1).row(0);
        got.insert(got.end(), row.as<float>(), row.as<float>() + config_.vocab_size);
      }
    EXPECT_LT(test::relative_error(got, want), kBound);
    gpt.losses(stream_, weight_views_, targets_);
    const double loss = golden_.doubles("loss").at(0);
    EXPECT_LT(std::abs(mean_loss(gpt) - loss), kBound * loss);
  }
}

TEST_P(GptGolden, EveryGradientIsAnnouncedOnceInTheOrderOfReadiness) {
  const Gpt gpt = make_gpt(true);
  std::vector<int> order;
  backward(gpt, 1.0F, false, [&](std::size_t param) { order.push_back(specs_[param].ready); });
  ASSERT_EQ(order.size(), specs_.size());
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), order.size());
}

INSTANTIATE_TEST_SUITE_P(All, GptGolden, testing::Values("plain", "gqa", "window", "softcap"),
                         [](const auto& instance) { return std::string(instance.param); });

// What the golden files must be able to see. Each mutation of the configuration changes the loss or
// a gradient by more than the bound of the tests above, so none could hide behind it.
struct Mutation {
  const char* name;
  const char* golden;
  void (*change)(GptConfig&);
};

class GptMutation : public testing::TestWithParam<Mutation> {};

TEST_P(GptMutation, IsSeenByTheGolden) {
  const Mutation& mutation = GetParam();
  const Golden golden(std::string("gpt_") + mutation.golden + ".safetensors");
  GptConfig config = config_of(golden);
  mutation.change(config);
  test::ImmediateStream stream;
  TestArena arena;
  std::vector<HostTensor> memory;
  std::vector<Tensor> weights;
  for (const ParamSpec& spec : gpt_parameters(config))
    memory.push_back(HostTensor(spec.shape, golden.floats("weight/" + spec.name)));
  for (const HostTensor& weight : memory)
    weights.push_back(weight);
  const std::int64_t batch = golden.metadata_integer("batch");
  const std::int64_t t = golden.metadata_integer("t");
  const RotaryTables rotary = make_rotary_tables(config, t, arena);
  fill_rotary_tables(stream, config, rotary);
  const Gpt gpt(config, {.b = batch, .t = t, .backward = false}, rotary, "", arena);
  gpt.forward(stream, weights, int32_tensor(golden, "inputs"));
  std::vector<float> got;
  const std::int64_t first = golden.metadata_integer("logits_first");
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t p = first; p < t; ++p) {
      const Tensor row = gpt.logits(stream, weights, b * t + p, b * t + p + 1).row(0);
      got.insert(got.end(), row.as<float>(),
                 row.as<float>() + golden.metadata_integer("vocab_size"));
    }
  EXPECT_GT(test::relative_error(got, golden.doubles("logits")), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    All, GptMutation,
    testing::Values(
        Mutation{"AllWindowsLong", "window", [](GptConfig& c) { c.window_pattern = "L"; }},
        Mutation{"NoQkScale", "softcap", [](GptConfig& c) { c.qk_scale = 1; }},
        Mutation{"NoSoftCap", "softcap", [](GptConfig& c) { c.softcap = 0; }},
        Mutation{"OtherRotaryBase", "plain", [](GptConfig& c) { c.rope_base = 10000; }}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace muo
