#include "trainer/options/model_options.h"

#include <cmath>

namespace muo::trainer {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Returns the head count nearest to width / head_size that gives whole, even head sizes.
std::int64_t choose_heads(std::int64_t width, std::int64_t head_size) {
  const auto wanted = static_cast<double>(width) / static_cast<double>(head_size);
  std::int64_t best = 1;
  for (std::int64_t heads = 1; heads <= width / 2; ++heads) {
    if (width % heads != 0 || (width / heads) % 2 != 0) continue;
    if (std::abs(static_cast<double>(heads) - wanted) <
        std::abs(static_cast<double>(best) - wanted))
      best = heads;
  }
  return best;
}

}  // namespace

const std::array<GptField, kGptFields>& gpt_fields() {
  using Gpt = model::GptConfig;
  using enum OptionClass;
  const auto row = [](std::string_view name, OptionClass kind, std::string_view value,
                      std::string_view help, OptionRange range = {}) {
    return OptionGroup{kModelGroup}(name, kind, value, help, {}, range);
  };
  const auto size = [](std::string_view name, std::int64_t Gpt::*member, std::string_view nanochat,
                       OptionRow option) {
    return GptField{
        .name = name, .member = member, .nanochat = nanochat, .option = std::move(option)};
  };
  const auto extra = [&](std::string_view name, bool Gpt::*member, std::string_view option,
                         std::string_view help) {
    return GptField{.name = name,
                    .member = member,
                    .by_preset = true,
                    .option = row(option, kShape, "on|off", help)};
  };
  static const std::array<GptField, kGptFields> fields = {{
      size("vocab_size", &Gpt::vocab_size, "vocab_size", row("", kShape, "", "", {1, kMaxVocab})),
      size("n_layer", &Gpt::n_layer, "n_layer",
           row("n-layer", kShape, "N", "number of layers, instead of --depth", {1, kMaxLayers})),
      size("n_embd", &Gpt::n_embd, "n_embd",
           row("n-embd", kShape, "N", "model width, instead of --depth's", {1, kMaxWidth})
               .replacing({"n-head", "n-kv-head"})),
      size("n_head", &Gpt::n_head, "n_head",
           row("n-head", kShape, "N", "query heads; must divide the width into even head sizes",
               {1, kMaxWidth})
               .replacing({"n-kv-head"})),
      size("n_kv_head", &Gpt::n_kv_head, "n_kv_head",
           row("n-kv-head", kShape, "N", "key and value heads; must divide the query heads",
               {1, kMaxWidth})),
      size("seq_len", &Gpt::seq_len, "sequence_len",
           row("max-seq-len", kShape, "TOKENS", "tokens per row (T); plain: 256, nanochat: 2048",
               {2, 1 << 20})
               .replacing({"device-batch-size"})),
      {.name = "softcap",
       .member = &Gpt::softcap,
       .option = row("softcap", kCaptured, "X", "soft-cap logits to X tanh(logits / X); 0: off",
                     {0, 1e6})},
      extra("value_embeddings", &Gpt::value_embeddings, "value-embeddings",
            "gated embeddings added to every other layer's values"),
      extra("smear", &Gpt::smear, "smear", "add a part of the previous token's embedding"),
      extra("backout", &Gpt::backout, "backout",
            "subtract a part of the middle layer's output at the end"),
      extra("resid_lambdas", &Gpt::resid_lambdas, "resid-lambdas",
            "learned weight of the residual stream at each layer"),
      extra("x0_lambdas", &Gpt::x0_lambdas, "x0-lambdas",
            "learned weight of the embedding added at each layer"),
      {.name = "qk_scale",
       .member = &Gpt::qk_scale,
       .by_preset = true,
       .option = row("qk-scale", kCaptured, "X",
                     "scale of normed queries and keys; plain 1, nanochat 1.2", {1e-3, 1e3})},
      {.name = "window_pattern",
       .member = &Gpt::window_pattern,
       .nanochat = "window_pattern",
       .by_preset = true,
       .option = row("window-pattern", kShape, "LETTERS",
                     "attention window by layer: L sees T tokens, S a quarter")},
      {.name = "rope_base", .member = &Gpt::rope_base},
  }};
  return fields;
}

void check_read_config(const model::GptConfig& model, const std::string& where) {
  for_each_gpt_field(model, [&]<class Value>(const GptField& field, const Value& value) {
    if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>)
      check_range(field.option.range, static_cast<double>(value),
                  fmt::format("{}: {}", where, field.name), fmt::format("{}", value));
  });
  try {
    model::check_config(model);
  } catch (const InputError& error) {
    throw input_error("{}: {}", where, error.what());
  }
}

std::int64_t ModelOptions::width_of(std::int64_t layers) const {
  return round_up(layers * aspect_ratio, head_size);
}

model::GptConfig make_gpt_config(const ModelOptions& o, std::int64_t vocab_size) {
  const bool nanochat = o.preset == ModelPreset::kNanochat;
  model::GptConfig model;
  if (nanochat) model::set_nanochat_extras(model);
  model.seq_len = nanochat ? 2048 : 256;
  model.n_layer = o.depth;
  model.n_embd = o.value_or(&model::GptConfig::n_embd, o.width_of(o.depth));
  model.n_head = o.value_or(&model::GptConfig::n_head, choose_heads(model.n_embd, o.head_size));
  model.n_kv_head = model.n_head;
  for (std::size_t i = 0; i < kGptFields; ++i)
    if (o.is_set[i])
      std::visit([&](auto member) { model.*member = o.values.*member; }, gpt_fields()[i].member);
  model.vocab_size = vocab_size;
  return model;
}

}  // namespace muo::trainer
