#include "app/checkpoint/nanochat_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "app/checkpoint/model_json.h"
#include "app/options/model_options.h"
#include "app/options/option_table.h"
#include "base/check.h"
#include "base/strict_json.h"

namespace muo::app {
namespace {

using nlohmann::json;

constexpr const char* kModelConfig = "model_config";

std::int64_t count_of(const json& value, const std::string& what) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    throw input_error("{} is {}: a count is expected", what, value.dump());
  return value.get<std::int64_t>();
}

// nanochat takes a window pattern in either case.
std::string letters_of(const json& value, const std::string& what) {
  if (!value.is_string())
    throw input_error("{} is {}: letters S and L are expected", what, value.dump());
  auto letters = value.get<std::string>();
  std::ranges::replace(letters, 's', 'S');
  std::ranges::replace(letters, 'l', 'L');
  return letters;
}

// "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& items) {
  constexpr std::size_t kMost = 3;
  const std::size_t shown = std::min(items.size(), kMost);
  std::string out = fmt::format("{}", fmt::join(std::span(items).first(shown), ", "));
  if (items.size() > shown) out += fmt::format(" and {} more", items.size() - shown);
  return out;
}

}  // namespace

NanochatMeta parse_nanochat_meta(std::string_view text, const std::string& where) {
  const json meta = parse_python_json(text, where);
  const auto config = meta.is_object() ? meta.find(kModelConfig) : meta.end();
  if (config == meta.end() || !config->is_object())
    throw input_error("{}: no {}: give the meta_*.json of a nanochat checkpoint", where,
                      kModelConfig);
  NanochatMeta out;
  model::set_nanochat_extras(out.model);
  for_each_gpt_field(out.model, [&]<class Value>(const GptField& row, Value& value) {
    if (row.nanochat.empty()) return;
    const auto found = config->find(row.nanochat);
    if (found == config->end() && row.nanochat == "window_pattern") {
      if constexpr (std::is_same_v<Value, std::string>) value = "L";  // as nanochat's loader
      return;
    }
    if (found == config->end())
      throw input_error("{}: no {}.{}", where, kModelConfig, row.nanochat);
    const std::string what = fmt::format("{}: {}.{}", where, kModelConfig, row.nanochat);
    if constexpr (std::is_same_v<Value, std::int64_t>) value = count_of(*found, what);
    if constexpr (std::is_same_v<Value, std::string>) value = letters_of(*found, what);
  });
  if (const auto step = meta.find("step"); step != meta.end()) {
    out.step = count_of(*step, where + ": step");
    check_range({0, kMostSteps}, static_cast<double>(out.step), where + ": step", step->dump());
  }
  check_read_config(out.model, where);
  return out;
}

std::string nanochat_objection(const model::GptConfig& model) {
  // This model as far as nanochat's files describe it; all else is as nanochat has it.
  model::GptConfig possible;
  model::set_nanochat_extras(possible);
  for (const GptField& field : gpt_fields())
    if (!field.nanochat.empty())
      std::visit([&](auto member) { possible.*member = model.*member; }, field.member);
  const std::string difference = model_difference(model, possible);
  return difference.empty() ? ""
                            : fmt::format(
                                  "not a model that nanochat has: {}; to export with --out, "
                                  "train with --model nanochat",
                                  difference);
}

std::string nanochat_meta_text(const NanochatMeta& meta) {
  json config = json::object();
  for_each_gpt_field(meta.model, [&](const GptField& field, const auto& value) {
    if (!field.nanochat.empty()) config[std::string(field.nanochat)] = value;
  });
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
    throw input_error("{}: not the weights of this configuration: {}", file.path().string(),
                      fmt::join(reasons, "; "));
}

std::filesystem::path meta_beside(const std::filesystem::path& model) {
  constexpr std::string_view kPrefix = "model_";
  const std::string name = model.stem().string();
  if (!name.starts_with(kPrefix)) return {};
  return model.parent_path() / ("meta_" + name.substr(kPrefix.size()) + ".json");
}

}  // namespace muo::app
