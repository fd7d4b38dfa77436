#include "kit/export/nanochat_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/strict_json.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/options/model_options.h"
#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

using nlohmann::json;

constexpr const char* kModelConfig = "model_config";

std::int64_t count_of(const json& value, const std::string& what) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    throw trainer::input_error("{} is {}: expected a count", what, value.dump());
  return value.get<std::int64_t>();
}

// nanochat accepts window patterns in upper and lower case.
std::string letters_of(const json& value, const std::string& what) {
  if (!value.is_string())
    throw trainer::input_error("{} is {}: expected letters S and L", what, value.dump());
  auto letters = value.get<std::string>();
  std::ranges::replace(letters, 's', 'S');
  std::ranges::replace(letters, 'l', 'L');
  return letters;
}

// Formats "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& items) {
  constexpr std::size_t kMax = 3;
  const std::size_t shown = std::min(items.size(), kMax);
  std::string out = fmt::format("{}", fmt::join(std::span(items).first(shown), ", "));
  if (items.size() > shown) out += fmt::format(" and {} more", items.size() - shown);
  return out;
}

}  // namespace

NanochatMeta parse_nanochat_meta(std::string_view text, const std::string& where) {
  const json meta = parse_python_json(text, where);
  const auto config = meta.is_object() ? meta.find(kModelConfig) : meta.end();
  if (config == meta.end() || !config->is_object())
    throw trainer::input_error("{}: no {}: give the meta_*.json of a nanochat checkpoint", where,
                               kModelConfig);
  NanochatMeta out;
  model::set_nanochat_extras(out.model);
  trainer::for_each_gpt_field(
      out.model, [&]<class Value>(const trainer::GptField& row, Value& value) {
        if (row.nanochat.empty()) return;
        const auto found = config->find(row.nanochat);
        if (found == config->end() && row.nanochat == "window_pattern") {
          if constexpr (std::is_same_v<Value, std::string>) value = "L";  // nanochat's default
          return;
        }
        if (found == config->end())
          throw trainer::input_error("{}: no {}.{}", where, kModelConfig, row.nanochat);
        const std::string what = fmt::format("{}: {}.{}", where, kModelConfig, row.nanochat);
        if constexpr (std::is_same_v<Value, std::int64_t>) value = count_of(*found, what);
        if constexpr (std::is_same_v<Value, std::string>) value = letters_of(*found, what);
      });
  if (const auto step = meta.find("step"); step != meta.end()) {
    out.step = count_of(*step, where + ": step");
    trainer::check_range({0, trainer::kMaxSteps}, static_cast<double>(out.step), where + ": step",
                         step->dump());
  }
  trainer::check_read_config(out.model, where);
  return out;
}

std::string nanochat_objection(const model::GptConfig& model) {
  // nanochat's model, with the fields of this model that nanochat's files contain.
  model::GptConfig possible;
  model::set_nanochat_extras(possible);
  for (const trainer::GptField& field : trainer::gpt_fields())
    if (!field.nanochat.empty())
      std::visit([&](auto member) { possible.*member = model.*member; }, field.member);
  const std::string difference = trainer::model_difference(model, possible);
  return difference.empty() ? ""
                            : fmt::format(
                                  "nanochat does not support this model: {}; to export with "
                                  "--out, train with --model nanochat",
                                  difference);
}

std::string nanochat_meta_text(const NanochatMeta& meta) {
  json config = json::object();
  trainer::for_each_gpt_field(meta.model, [&](const trainer::GptField& field, const auto& value) {
    if (!field.nanochat.empty()) config[std::string(field.nanochat)] = value;
  });
  return json{{"step", meta.step}, {kModelConfig, config}}.dump(2) + "\n";
}

void check_weights(const trainer::SafetensorsFile& file, std::span<const ParamSpec> params) {
  std::vector<std::string> lacking;
  std::vector<std::string> other;
  for (const ParamSpec& param : params) {
    const trainer::SafetensorsEntry* const found = file.find(param.name);
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
  for (const trainer::SafetensorsEntry& entry : file.entries())
    if (std::ranges::find(params, entry.spec.name, &ParamSpec::name) == params.end())
      extra.push_back(entry.spec.name);
  std::vector<std::string> reasons;
  if (!lacking.empty()) reasons.push_back("it lacks " + listed(lacking));
  if (!other.empty()) reasons.push_back(listed(other));
  if (!extra.empty()) reasons.push_back("the model has no " + listed(extra));
  if (!reasons.empty())
    throw trainer::input_error("{}: not the weights of this configuration: {}",
                               file.path().string(), fmt::join(reasons, "; "));
}

std::filesystem::path meta_beside(const std::filesystem::path& model) {
  constexpr std::string_view kPrefix = "model_";
  const std::string name = model.stem().string();
  if (!name.starts_with(kPrefix)) return {};
  return model.parent_path() / ("meta_" + name.substr(kPrefix.size()) + ".json");
}

}  // namespace muo::kit
