#include "app/nanochat_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

#include "app/model_json.h"
#include "base/check.h"
#include "base/strict_json.h"

namespace muo {
namespace {

using nlohmann::json;

constexpr const char* kModelConfig = "model_config";

// nanochat's names for the sizes, one list for both directions.
template <class Config, class Visit>
void for_each_size(Config& c, Visit&& visit) {
  visit("sequence_len", c.seq_len);
  visit("vocab_size", c.vocab_size);
  visit("n_layer", c.n_layer);
  visit("n_head", c.n_head);
  visit("n_kv_head", c.n_kv_head);
  visit("n_embd", c.n_embd);
}

std::int64_t count_of(const json& value, const std::string& what) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    throw InputError(fmt::format("{} is {}: a count is expected", what, value.dump()));
  return value.get<std::int64_t>();
}

// The first few of many.
std::string listed(const std::vector<std::string>& items) {
  constexpr std::size_t kMost = 3;
  const std::size_t shown = std::min(items.size(), kMost);
  std::string out = fmt::format("{}", fmt::join(std::span(items).first(shown), ", "));
  if (items.size() > shown) out += fmt::format(" and {} more", items.size() - shown);
  return out;
}

}  // namespace

NanochatMeta parse_nanochat_meta(std::string_view text, const std::string& where) {
  const json meta = parse_strict_json(text, where);
  const auto config = meta.is_object() ? meta.find(kModelConfig) : meta.end();
  if (config == meta.end() || !config->is_object())
    throw InputError(fmt::format("{}: no {}: give the meta_*.json of a nanochat checkpoint", where,
                                 kModelConfig));
  const auto field = [&](const char* name) -> const json& {
    const auto found = config->find(name);
    if (found == config->end())
      throw InputError(fmt::format("{}: no {}.{}", where, kModelConfig, name));
    return *found;
  };
  NanochatMeta out;
  set_nanochat_extras(out.model);
  for_each_size(out.model, [&](const char* name, std::int64_t& value) {
    value = count_of(field(name), fmt::format("{}: {}.{}", where, kModelConfig, name));
  });
  const json& pattern = field("window_pattern");
  if (!pattern.is_string())
    throw InputError(fmt::format("{}: {}.window_pattern is {}: letters S and L are expected", where,
                                 kModelConfig, pattern.dump()));
  out.model.window_pattern = pattern.get<std::string>();
  std::ranges::replace(out.model.window_pattern, 's', 'S');
  std::ranges::replace(out.model.window_pattern, 'l', 'L');
  if (const auto step = meta.find("step"); step != meta.end())
    out.step = count_of(*step, where + ": step");
  try {
    check_config(out.model);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", where, error.what()));
  }
  return out;
}

std::string nanochat_meta_text(const NanochatMeta& meta, const std::string& where) {
  const GptConfig& model = meta.model;
  GptConfig possible;
  for_each_size(possible, [&](const char* name, std::int64_t& value) {
    for_each_size(model, [&](const char* other, const std::int64_t& is) {
      if (std::string_view(name) == other) value = is;
    });
  });
  set_nanochat_extras(possible);
  possible.window_pattern = model.window_pattern;
  if (const std::string difference = model_difference(model, possible); !difference.empty())
    throw InputError(
        fmt::format("{}: not a model that nanochat has: {}; train with --model "
                    "nanochat to export",
                    where, difference));
  json config = {{"window_pattern", model.window_pattern}};
  for_each_size(model, [&](const char* name, std::int64_t value) { config[name] = value; });
  return json{{"step", meta.step}, {kModelConfig, config}}.dump(2) + "\n";
}

void check_weights(const SafetensorsFile& file, std::span<const ParamSpec> params) {
  std::vector<std::string> lacking;
  std::vector<std::string> other;
  for (const ParamSpec& param : params) {
    const SafetensorsEntry* const found = file.find(param.name);
    if (found == nullptr)
      lacking.push_back(param.name);
    else if (found->spec.shape != param.shape)
      other.push_back(fmt::format("{} is {}, not {}", param.name, found->spec.shape.text(),
                                  param.shape.text()));
    else if (found->spec.dtype != DType::kF32 && found->spec.dtype != DType::kBF16)
      other.push_back(
          fmt::format("{} is {}, not fp32 or bf16", param.name, name_of(found->spec.dtype)));
  }
  std::vector<std::string> extra;
  for (const SafetensorsEntry& entry : file.entries())
    if (std::ranges::find(params, entry.spec.name, &ParamSpec::name) == params.end())
      extra.push_back(entry.spec.name);
  std::vector<std::string> reasons;
  if (!lacking.empty()) reasons.push_back("it lacks " + listed(lacking));
  if (!other.empty()) reasons.push_back(listed(other));
  if (!extra.empty()) reasons.push_back("the model has no " + listed(extra));
  if (!reasons.empty())
    throw InputError(fmt::format("{}: not the weights of this configuration: {}",
                                 file.path().string(), fmt::join(reasons, "; ")));
}

std::filesystem::path meta_beside(const std::filesystem::path& model) {
  constexpr std::string_view kPrefix = "model_";
  const std::string name = model.stem().string();
  if (!name.starts_with(kPrefix)) return {};
  return model.parent_path() / ("meta_" + name.substr(kPrefix.size()) + ".json");
}

}  // namespace muo
