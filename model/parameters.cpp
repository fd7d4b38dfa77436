#include "model/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace muo {
namespace {

// Appends the parameters in forward order and, with them, their indices.
struct Builder {
  DType dtype;
  std::vector<ParamSpec> specs = {};

  std::size_t add(std::string name, Shape shape, ParamRole role) {
    const auto index = static_cast<int>(specs.size());
    // What mixes and gates stays fp32, as in nanochat.
    const bool matrix = role == ParamRole::kMatrix || role == ParamRole::kEmbedding ||
                        role == ParamRole::kUnembedding || role == ParamRole::kValueEmbedding;
    specs.push_back({.name = std::move(name),
                     .shape = shape,
                     .role = role,
                     .replica = matrix ? dtype : DType::kF32,
                     .ready = 0,
                     .use = index});
    return specs.size() - 1;
  }
};

GptParams build(const GptConfig& c, Builder& builder) {
  const std::int64_t kv = c.n_kv_head * c.head_dim();
  GptParams params;
  params.wte =
      builder.add("transformer.wte.weight", {c.padded_vocab(), c.n_embd}, ParamRole::kEmbedding);
  if (c.smear) {
    params.smear_gate = builder.add(kSmearGateName, {1, kSmearGateChannels}, ParamRole::kSmear);
    params.smear_lambda = builder.add("smear_lambda", {1}, ParamRole::kSmear);
  }
  if (c.resid_lambdas)
    params.resid_lambdas = builder.add("resid_lambdas", {c.n_layer}, ParamRole::kResidLambda);
  if (c.x0_lambdas)
    params.x0_lambdas = builder.add("x0_lambdas", {c.n_layer}, ParamRole::kX0Lambda);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const std::string block = "transformer.h." + std::to_string(i);
    const auto matrix = [&](const char* name, Shape shape) {
      return builder.add(block + name, shape, ParamRole::kMatrix);
    };
    const bool valued = c.has_value_embedding(i);
    params.blocks.push_back({
        .value_embed = valued ? builder.add("value_embeds." + std::to_string(i) + ".weight",
                                            {c.padded_vocab(), kv}, ParamRole::kValueEmbedding)
                              : kAbsent,
        .ve_gate =
            valued ? matrix(".attn.ve_gate.weight", {c.n_kv_head, kValueGateChannels}) : kAbsent,
        .c_q = matrix(".attn.c_q.weight", {c.n_embd, c.n_embd}),
        .c_k = matrix(".attn.c_k.weight", {kv, c.n_embd}),
        .c_v = matrix(".attn.c_v.weight", {kv, c.n_embd}),
        .attn_proj = matrix(".attn.c_proj.weight", {c.n_embd, c.n_embd}),
        .c_fc = matrix(".mlp.c_fc.weight", {4 * c.n_embd, c.n_embd}),
        .mlp_proj = matrix(".mlp.c_proj.weight", {c.n_embd, 4 * c.n_embd}),
    });
  }
  if (c.backout) params.backout_lambda = builder.add("backout_lambda", {1}, ParamRole::kSmear);
  params.lm_head =
      builder.add("lm_head.weight", {c.padded_vocab(), c.n_embd}, ParamRole::kUnembedding);
  // Backward finishes gradients in the reverse of the order of use.
  const auto count = static_cast<int>(builder.specs.size());
  for (ParamSpec& spec : builder.specs)
    spec.ready = count - 1 - spec.use;
  return params;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::vector<ParamSpec> gpt_parameters(const GptConfig& config) {
  Builder builder{.dtype = config.dtype};
  build(config, builder);
  return builder.specs;
}

GptParams index_parameters(const GptConfig& config) {
  Builder builder{.dtype = config.dtype};
  return build(config, builder);
}

void init_parameter(const GptConfig& config, const ParamSpec& spec, std::uint64_t seed,
                    std::int64_t begin, std::int64_t count, float* values) {
  const CounterRandom random(seed, spec.name);
  const auto each = [&](auto&& draw) {
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = draw(static_cast<std::uint64_t>(begin + i));
  };
  const auto normal = [&](float deviation) {
    each([&](std::uint64_t i) { return deviation * random.normal(i); });
  };
  const auto uniform = [&](float bound) {
    each([&](std::uint64_t i) { return bound * (2.0F * random.uniform(i) - 1.0F); });
  };
  const auto linear = [&](double first, double change) {  // over the layers
    const auto last = static_cast<double>(std::max<std::int64_t>(config.n_layer - 1, 1));
    each([&](std::uint64_t i) {
      return static_cast<float>(first + change * static_cast<double>(i) / last);
    });
  };
  // Uniform with standard deviation 1 / sqrt(n_embd).
  const float bound = std::sqrt(3.0F / static_cast<float>(config.n_embd));
  switch (spec.role) {
    case ParamRole::kEmbedding:
      return normal(0.8F);
    case ParamRole::kUnembedding:
      return normal(0.001F);
    case ParamRole::kValueEmbedding:
      return uniform(bound);
    case ParamRole::kResidLambda:
      return linear(1.15, -0.10);
    case ParamRole::kX0Lambda:
      return linear(0.20, -0.15);
    case ParamRole::kSmear:
      if (spec.name == kSmearGateName) break;
      return each([&](std::uint64_t) { return spec.name == "backout_lambda" ? 0.2F : 0.0F; });
    case ParamRole::kMatrix:
      if (ends_with(spec.name, ".ve_gate.weight")) break;
      if (ends_with(spec.name, ".c_proj.weight")) return each([](std::uint64_t) { return 0.0F; });
      return uniform(ends_with(spec.name, ".c_fc.weight") ? 0.4F * bound : bound);
  }
  each([&](std::uint64_t i) { return 0.02F * random.uniform(i); });  // gates: U(0, 0.02)
}

}  // namespace muo
