#include "app/options/model_options.h"

#include <cmath>

namespace muo {
namespace {

constexpr std::int64_t kHeadSize = 128;  // where nothing else is asked

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The head count nearest to width / 128 that gives whole, even head sizes.
std::int64_t choose_heads(std::int64_t width) {
  const auto wanted = static_cast<double>(width) / static_cast<double>(kHeadSize);
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
  using Gpt = GptConfig;
  constexpr double kMostLayers = 1024;
  constexpr double kMostWidth = 1 << 16;
  constexpr double kMostRows = 1 << 20;
  constexpr std::string_view kSwitch = "on|off";
  static const std::array<GptField, kGptFields> kFields = {{
      {.name = "vocab_size", .member = &Gpt::vocab_size, .nanochat = "vocab_size"},
      {.name = "n_layer",
       .member = &Gpt::n_layer,
       .nanochat = "n_layer",
       .option = "n-layer",
       .value = "N",
       .help = "layers, instead of --depth",
       .low = 1,
       .high = kMostLayers},
      {.name = "n_embd",
       .member = &Gpt::n_embd,
       .nanochat = "n_embd",
       .option = "n-embd",
       .value = "N",
       .help = "width, instead of --depth's",
       .low = 1,
       .high = kMostWidth,
       .replaces = {"n-head", "n-kv-head"}},
      {.name = "n_head",
       .member = &Gpt::n_head,
       .nanochat = "n_head",
       .option = "n-head",
       .value = "N",
       .help = "query heads; must divide the width into even head sizes",
       .low = 1,
       .high = kMostWidth,
       .replaces = {"n-kv-head"}},
      {.name = "n_kv_head",
       .member = &Gpt::n_kv_head,
       .nanochat = "n_kv_head",
       .option = "n-kv-head",
       .value = "N",
       .help = "key and value heads; must divide the query heads",
       .low = 1,
       .high = kMostWidth},
      {.name = "seq_len",
       .member = &Gpt::seq_len,
       .nanochat = "sequence_len",
       .option = "max-seq-len",
       .value = "TOKENS",
       .help = "length of a row, T; plain 256, nanochat 2048",
       .low = 2,
       .high = kMostRows,
       .replaces = {"device-batch-size"}},
      {.name = "softcap",
       .member = &Gpt::softcap,
       .option = "softcap",
       .value = "X",
       .help = "logits are X tanh(logits / X); 0: off",
       .kind = OptionClass::kCaptured,
       .high = 1e6},
      {.name = "value_embeddings",
       .member = &Gpt::value_embeddings,
       .by_preset = true,
       .option = "value-embeddings",
       .value = kSwitch,
       .help = "gated token tables added to every other layer's values"},
      {.name = "smear",
       .member = &Gpt::smear,
       .by_preset = true,
       .option = "smear",
       .value = kSwitch,
       .help = "mix a part of the previous token's embedding in"},
      {.name = "backout",
       .member = &Gpt::backout,
       .by_preset = true,
       .option = "backout",
       .value = kSwitch,
       .help = "subtract a part of the middle layer's output at the end"},
      {.name = "resid_lambdas",
       .member = &Gpt::resid_lambdas,
       .by_preset = true,
       .option = "resid-lambdas",
       .value = kSwitch,
       .help = "learned weight of the residual stream at each layer"},
      {.name = "x0_lambdas",
       .member = &Gpt::x0_lambdas,
       .by_preset = true,
       .option = "x0-lambdas",
       .value = kSwitch,
       .help = "learned weight of the embedding added at each layer"},
      {.name = "qk_scale",
       .member = &Gpt::qk_scale,
       .by_preset = true,
       .option = "qk-scale",
       .value = "X",
       .help = "of normed queries and keys; plain 1, nanochat 1.2",
       .kind = OptionClass::kCaptured,
       .low = 1e-3,
       .high = 1e3},
      {.name = "window_pattern",
       .member = &Gpt::window_pattern,
       .nanochat = "window_pattern",
       .by_preset = true,
       .option = "window-pattern",
       .value = "LETTERS",
       .help = "layers: L sees T, S a quarter; plain L, nanochat SSSL"},
      {.name = "rope_base", .member = &Gpt::rope_base},
  }};
  return kFields;
}

GptConfig make_gpt_config(const ModelOptions& o, std::int64_t vocab_size) {
  const bool nanochat = o.preset == "nanochat";
  GptConfig model;
  if (nanochat) set_nanochat_extras(model);
  model.seq_len = nanochat ? 2048 : 256;
  model.n_layer = o.depth;
  model.n_embd = o.value_or(&GptConfig::n_embd, round_up(o.depth * 64, kHeadSize));
  model.n_head = o.value_or(&GptConfig::n_head, choose_heads(model.n_embd));
  model.n_kv_head = model.n_head;
  for (std::size_t i = 0; i < kGptFields; ++i)
    if (o.is_told[i])
      std::visit([&](auto member) { model.*member = o.told.*member; }, gpt_fields()[i].member);
  model.vocab_size = vocab_size;
  return model;
}

}  // namespace muo
