#include "app/model_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <type_traits>

#include "app/config_file.h"
#include "app/option_table.h"
#include "app/toml.h"

namespace muo {
namespace {

using nlohmann::json;

// One list of fields for both directions: all that a resumed run must keep, so not dtype.
template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) {
  visit("vocab_size", c.vocab_size);
  visit("n_layer", c.n_layer);
  visit("n_head", c.n_head);
  visit("n_kv_head", c.n_kv_head);
  visit("n_embd", c.n_embd);
  visit("seq_len", c.seq_len);
  visit("window_pattern", c.window_pattern);
  visit("rope_base", c.rope_base);
  visit("qk_scale", c.qk_scale);
  visit("softcap", c.softcap);
  visit("value_embeddings", c.value_embeddings);
  visit("smear", c.smear);
  visit("backout", c.backout);
  visit("resid_lambdas", c.resid_lambdas);
  visit("x0_lambdas", c.x0_lambdas);
}

// Switches that the first checkpoints, of plain models only, do not mention: off.
bool may_be_missing(std::string_view field) {
  constexpr std::array<std::string_view, 5> kLater = {"value_embeddings", "smear", "backout",
                                                      "resid_lambdas", "x0_lambdas"};
  return std::ranges::find(kLater, field) != kLater.end();
}

[[noreturn]] void refuse(const Checkpoint& checkpoint, const std::string& why) {
  throw InputError(concat(checkpoint.path().string(), ": ", why,
                          ": was it written by another version of muograph?"));
}

// A float in its own digits: 1.2, not 1.2000000476837158. It reads back as the same float.
template <class Value>
json json_of(const Value& value) {
  if constexpr (std::is_same_v<Value, float>)
    return json::parse(fmt::format("{}", value));
  else
    return value;
}

json config_of(const Checkpoint& checkpoint) { return json::parse(checkpoint.info().config); }

}  // namespace

std::string checkpoint_config(const RunConfig& config) {
  json model = json::object();
  for_each_field(config.model,
                 [&](const char* name, const auto& value) { model[name] = json_of(value); });
  model["dtype"] = name_of(config.model.dtype);
  TrainOptions options = config.options;
  return json{{"model", model}, {"options", config_text(option_table(options))}}.dump();
}

std::string data_identity(const Corpus& corpus) {
  return json{{"train_tokens", corpus.train->size()},
              {"val_tokens", corpus.val->size()},
              {"vocab_size", corpus.vocab_size}}
      .dump();
}

GptConfig checkpoint_model(const Checkpoint& checkpoint) {
  const json config = config_of(checkpoint);
  const auto model = config.find("model");
  if (model == config.end() || !model->is_object()) refuse(checkpoint, "no model in its manifest");
  GptConfig out;
  for_each_field(out, [&](const char* name, auto& value) {
    const auto field = model->find(name);
    if (field == model->end() && may_be_missing(name)) return;
    if (field == model->end()) refuse(checkpoint, concat("no model.", name, " in its manifest"));
    try {
      field->get_to(value);
    } catch (const json::exception&) {
      refuse(checkpoint, concat("model.", name, " is ", field->dump()));
    }
  });
  if (const auto dtype = model->find("dtype"); dtype != model->end()) {
    if (*dtype == name_of(DType::kBF16))
      out.dtype = DType::kBF16;
    else if (*dtype != name_of(DType::kF32))
      refuse(checkpoint, concat("model.dtype is ", dtype->dump()));
  }
  check_config(out);
  return out;
}

std::string model_difference(const GptConfig& is, const GptConfig& wanted) {
  json other = json::object();
  for_each_field(wanted,
                 [&](const char* name, const auto& value) { other[name] = json_of(value); });
  std::string out;
  for_each_field(is, [&](const char* name, const auto& value) {
    if (const json mine = json_of(value); mine != other[name])
      out += concat(out.empty() ? "" : "; ", name, " ", mine.dump(), ", not ", other[name].dump());
  });
  return out;
}

std::string model_text(const GptConfig& model) {
  std::string out;
  for_each_field(model, [&](const char* name, const auto& value) {
    out += concat(out.empty() ? "" : ", ", name, " ", json_of(value).dump());
  });
  return out;
}

std::string checkpoint_options_text(const Checkpoint& checkpoint) {
  const json config = config_of(checkpoint);
  const auto text = config.find("options");
  if (text == config.end() || !text->is_string()) refuse(checkpoint, "no options in its manifest");
  return text->get<std::string>();
}

TrainOptions checkpoint_options(const Checkpoint& checkpoint) {
  TrainOptions options;
  const std::vector<OptionRow> rows = option_table(options);
  const std::string name = (checkpoint.path() / kManifestName).string();
  for (const TomlEntry& entry : parse_toml(checkpoint_options_text(checkpoint), name)) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const OptionRow& r) { return r.name == entry.key; });
    if (row == rows.end()) refuse(checkpoint, concat("unknown option '", entry.key, "'"));
    set_option(*row, entry.values, concat(name, ": ", entry.key));
  }
  return options;
}

}  // namespace muo
