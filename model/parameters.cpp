#include "model/parameters.h"

#include <cmath>

namespace muo::model {
namespace {

using Kind = InitialValues::Kind;

// Appends the parameters in forward order and records their indices.
struct Builder {
  DType dtype;
  std::int64_t vocab_size;
  std::vector<ParamSpec> specs = {};
  int layer = kNoLayer;

  std::size_t add(std::string name, Shape shape, ParamRole role, InitialValues init) {
    const auto index = static_cast<int>(specs.size());
    // Lambdas and gates stay fp32, as in nanochat.
    const bool matrix = role == ParamRole::kMatrix || role == ParamRole::kEmbedding ||
                        role == ParamRole::kUnembedding || role == ParamRole::kValueEmbedding;
    specs.push_back({.name = std::move(name),
                     .shape = shape,
                     .used_rows = matrix && role != ParamRole::kMatrix ? vocab_size : -1,
                     .role = role,
                     .layer = layer,
                     .init = init,
                     .replica = matrix ? dtype : DType::kF32,
                     .ready = 0,
                     .use = index,
                     .in_backward = role != ParamRole::kEmbedding});
    return specs.size() - 1;
  }
};

GptParams build(const GptConfig& c, Builder& builder) {
  const std::int64_t kv = c.n_kv_head * c.head_dim();
  // Standard deviation 1 / sqrt(n_embd).
  const float bound = std::sqrt(3.0F / static_cast<float>(c.n_embd));
  const InitialValues uniform{Kind::kUniform, bound};
  const InitialValues narrow{Kind::kUniform, 0.4F * bound};
  const InitialValues gate{Kind::kPositive, 0.02};
  GptParams params;
  params.wte = builder.add("transformer.wte.weight", {c.padded_vocab(), c.n_embd},
                           ParamRole::kEmbedding, {Kind::kNormal, 0.8});
  if (c.smear) {
    params.smear_gate =
        builder.add("smear_gate.weight", {1, kSmearGateChannels}, ParamRole::kSmear, gate);
    params.smear_lambda = builder.add("smear_lambda", {1}, ParamRole::kSmear, {});
  }
  if (c.resid_lambdas)
    params.resid_lambdas = builder.add("resid_lambdas", {c.n_layer}, ParamRole::kResidLambda,
                                       {Kind::kLinear, 1.15, -0.10});
  if (c.x0_lambdas)
    params.x0_lambdas =
        builder.add("x0_lambdas", {c.n_layer}, ParamRole::kX0Lambda, {Kind::kLinear, 0.20, -0.15});
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    builder.layer = static_cast<int>(i);
    const std::string block = "transformer.h." + std::to_string(i);
    const auto matrix = [&](const char* name, Shape shape, InitialValues init) {
      return builder.add(block + name, shape, ParamRole::kMatrix, init);
    };
    const bool valued = c.has_value_embedding(i);
    params.blocks.push_back({
        .value_embed =
            valued ? builder.add("value_embeds." + std::to_string(i) + ".weight",
                                 {c.padded_vocab(), kv}, ParamRole::kValueEmbedding, uniform)
                   : kAbsent,
        .ve_gate = valued ? matrix(".attn.ve_gate.weight", {c.n_kv_head, kValueGateChannels}, gate)
                          : kAbsent,
        .c_q = matrix(".attn.c_q.weight", {c.n_embd, c.n_embd}, uniform),
        .c_k = matrix(".attn.c_k.weight", {kv, c.n_embd}, uniform),
        .c_v = matrix(".attn.c_v.weight", {kv, c.n_embd}, uniform),
        .attn_proj = matrix(".attn.c_proj.weight", {c.n_embd, c.n_embd}, {}),
        .c_fc = matrix(".mlp.c_fc.weight", {4 * c.n_embd, c.n_embd}, narrow),
        .mlp_proj = matrix(".mlp.c_proj.weight", {c.n_embd, 4 * c.n_embd}, {}),
    });
  }
  builder.layer = kNoLayer;
  if (c.backout)
    params.backout_lambda =
        builder.add("backout_lambda", {1}, ParamRole::kSmear, {Kind::kConstant, 0.2});
  params.lm_head = builder.add("lm_head.weight", {c.padded_vocab(), c.n_embd},
                               ParamRole::kUnembedding, {Kind::kNormal, 0.001});
  // The backward pass completes gradients in reverse order of use.
  const auto count = static_cast<int>(builder.specs.size());
  for (ParamSpec& spec : builder.specs)
    spec.ready = count - 1 - spec.use;
  return params;
}

}  // namespace

std::vector<ParamSpec> gpt_parameters(const GptConfig& config) {
  Builder builder{.dtype = config.dtype, .vocab_size = config.vocab_size};
  build(config, builder);
  return builder.specs;
}

GptParams index_parameters(const GptConfig& config) {
  Builder builder{.dtype = config.dtype, .vocab_size = config.vocab_size};
  return build(config, builder);
}

}  // namespace muo::model
