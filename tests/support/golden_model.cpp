#include "support/golden_model.h"

#include <algorithm>

#include "base/check.h"

namespace muo::test {
namespace {

HostTensor int32_tensor(const Golden& golden, std::string_view name) {
  HostTensor out(golden.shape(name), DType::kI32);
  const std::vector<std::int64_t> values = golden.integers(name);
  for (std::size_t i = 0; i < values.size(); ++i)
    out.values<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return out;
}

}  // namespace

model::GptConfig config_of(const Golden& golden) {
  model::GptConfig c;
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
  const auto extra = [&](const char* name) {
    return golden.has_metadata(name) && golden.metadata_integer(name) != 0;
  };
  c.value_embeddings = extra("value_embeddings");
  c.smear = extra("smear");
  c.backout = extra("backout");
  c.resid_lambdas = extra("resid_lambdas");
  c.x0_lambdas = extra("x0_lambdas");
  return c;
}

GoldenModel::GoldenModel(const std::string& name,
                         const std::function<void(model::GptConfig&)>& change)
    : golden_(name + ".safetensors"),
      config_(config_of(golden_)),
      batch_(golden_.metadata_integer("batch")),
      t_(golden_.metadata_integer("t")),
      inputs_(int32_tensor(golden_, "inputs")),
      targets_(int32_tensor(golden_, "targets")) {
  if (change) change(config_);
  model::check_config(config_);
  specs_ = model::gpt_parameters(config_);
  for (const std::int32_t target : targets_.values<std::int32_t>())
    counted_ += target == -1 ? 0 : 1;
  for (const ParamSpec& spec : specs_) {
    MUO_CHECK(golden_.shape("weight/" + spec.name) == spec.shape, name, ": ", spec.name);
    weights_.push_back(
        HostTensor(spec.shape, golden_.floats("weight/" + spec.name)).rounded(spec.replica));
    gradients_.push_back(arena_.tensor({.name = spec.name, .shape = spec.shape}));
  }
  for (const HostTensor& weight : weights_)
    weight_views_.push_back(weight);
  rotary_ = model::make_rotary_tables(config_, t_, arena_);
  model::fill_rotary_tables(stream_, config_, rotary_);
}

HostTensor& GoldenModel::weight(std::string_view name) {
  const auto found = std::ranges::find(specs_, name, &ParamSpec::name);
  MUO_CHECK(found != specs_.end(), "no parameter ", name);
  return weights_[static_cast<std::size_t>(found - specs_.begin())];
}

model::Gpt GoldenModel::make_gpt(bool backward) {
  return {
      config_, {.b = batch_, .t = t_, .backward = backward, .logits = true}, rotary_, "", arena_};
}

void GoldenModel::run(const model::Gpt& gpt, float scale, bool accumulate,
                      const std::function<void(std::size_t)>& ready) {
  gpt.forward(stream_, {weight_views_}, inputs_);
  gpt.losses_and_backward(stream_, {weight_views_}, inputs_, targets_,
                          HostTensor({1}, std::vector{scale / static_cast<float>(counted_)}),
                          {.gradients = gradients_, .accumulate = accumulate, .ready = ready});
}

void GoldenModel::evaluate(const model::Gpt& gpt) {
  gpt.forward(stream_, {weight_views_}, inputs_);
  gpt.losses(stream_, {weight_views_}, targets_);
}

double GoldenModel::mean_loss(const model::Gpt& gpt) const {
  double sum = 0;
  for (std::int64_t i = 0; i < batch_ * t_; ++i)
    sum += static_cast<double>(gpt.row_losses().as<float>()[i]);
  return sum / counted_;
}

std::vector<float> GoldenModel::logits(const model::Gpt& gpt) {
  const std::int64_t first = golden_.metadata_integer("logits_first");
  std::vector<float> out;
  for (std::int64_t b = 0; b < batch_; ++b)
    for (std::int64_t p = first; p < t_; ++p) {
      const Tensor row = gpt.logits(stream_, {weight_views_}, b * t_ + p, b * t_ + p + 1).row(0);
      out.insert(out.end(), row.as<float>(), row.as<float>() + config_.vocab_size);
    }
  return out;
}

}  // namespace muo::test
