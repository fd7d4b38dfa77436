#include "model/parameters.h"

#include <cmath>

#include "base/philox.h"

namespace muo {
namespace {

// Appends the parameters in forward order and, with them, their indices.
struct Builder {
  std::vector<ParamSpec> specs;

  std::size_t add(std::string name, Shape shape, ParamRole role) {
    const auto index = static_cast<int>(specs.size());
    specs.push_back(
        {.name = std::move(name), .shape = shape, .role = role, .ready = 0, .use = index});
    return specs.size() - 1;
  }
};

GptParams build(const GptConfig& c, Builder& builder) {
  const std::int64_t kv = c.n_kv_head * c.head_dim();
  GptParams params;
  params.wte =
      builder.add("transformer.wte.weight", {c.padded_vocab(), c.n_embd}, ParamRole::kEmbedding);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const std::string block = "transformer.h." + std::to_string(i);
    const auto matrix = [&](const char* name, Shape shape) {
      return builder.add(block + name, shape, ParamRole::kMatrix);
    };
    params.blocks.push_back({
        .c_q = matrix(".attn.c_q.weight", {c.n_embd, c.n_embd}),
        .c_k = matrix(".attn.c_k.weight", {kv, c.n_embd}),
        .c_v = matrix(".attn.c_v.weight", {kv, c.n_embd}),
        .attn_proj = matrix(".attn.c_proj.weight", {c.n_embd, c.n_embd}),
        .c_fc = matrix(".mlp.c_fc.weight", {4 * c.n_embd, c.n_embd}),
        .mlp_proj = matrix(".mlp.c_proj.weight", {c.n_embd, 4 * c.n_embd}),
    });
  }
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
  Builder builder;
  build(config, builder);
  return builder.specs;
}

GptParams index_parameters(const GptConfig& config) {
  Builder builder;
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
  // Uniform with standard deviation 1 / sqrt(n_embd).
  const float bound = std::sqrt(3.0F / static_cast<float>(config.n_embd));
  if (spec.role == ParamRole::kEmbedding) return normal(0.8F);
  if (spec.role == ParamRole::kUnembedding) return normal(0.001F);
  MUO_CHECK(spec.role == ParamRole::kMatrix, "no initial distribution for ", spec.name);
  if (ends_with(spec.name, ".c_proj.weight")) return each([](std::uint64_t) { return 0.0F; });
  return uniform(ends_with(spec.name, ".c_fc.weight") ? 0.4F * bound : bound);
}

}  // namespace muo
