#include "kit/report/run_history.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/strict_json.h"
#include "kit/report/train_record.h"
#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

double number(const nlohmann::json& record, std::string_view key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const nlohmann::json& record, std::string_view key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

TrainRecord train_record(const nlohmann::json& record, std::int64_t step) {
  TrainRecord out;
  out.step = step;
  out.tokens = number(record, "tokens");
  for (std::size_t i = 0; i < kSeriesNames.size(); ++i)
    out.series.at(i) = number(record, kSeriesNames.at(i));
  out.gradient_scale = number(record, "gradient_scale");
  out.skipped = text(record, "skipped");
  out.bad_number = text(record, "bad_number");
  return out;
}

void add_train(TrainRecord record, RunHistory& history) {
  const std::int64_t step = record.step;
  // Removes the steps that a resumed run repeats.
  while (!history.step.empty() && history.step.back() >= step) {
    history.step.pop_back();
    history.tokens.pop_back();
    for (std::vector<double>& values : history.series)
      values.pop_back();
  }
  while (!history.skipped.empty() && history.skipped.back().step >= step)
    history.skipped.pop_back();
  while (!history.clipped.empty() && history.clipped.back() >= step) {
    history.clipped.pop_back();
    history.gradient_scale.pop_back();
  }
  history.step.push_back(step);
  const double tokens = record.tokens;
  history.tokens.push_back(tokens >= 0 && tokens < 0x1p62 ? static_cast<std::int64_t>(tokens) : 0);
  for (std::size_t i = 0; i < kSeriesNames.size(); ++i)
    history.series.at(i).push_back(record.series.at(i));
  if (!record.skipped.empty())
    history.skipped.push_back({step, std::move(record.skipped), std::move(record.bad_number)});
  if (record.gradient_scale < 1) {
    history.clipped.push_back(step);
    history.gradient_scale.push_back(record.gradient_scale);
  }
}

void add_evaluation(const nlohmann::json& record, std::int64_t step, RunHistory& history) {
  while (!history.eval_step.empty() && history.eval_step.back() >= step) {
    history.eval_step.pop_back();
    history.val_loss.pop_back();
    history.val_bpb.pop_back();
  }
  history.eval_step.push_back(step);
  history.val_loss.push_back(number(record, "val_loss"));
  history.val_bpb.push_back(number(record, "val_bpb"));
}

void add_update(const nlohmann::json& record, std::int64_t step, RunHistory& history) {
  while (!history.update_step.empty() && history.update_step.back() >= step) {
    history.update_step.pop_back();
    for (auto& [group, ratios] : history.update_ratio)
      ratios.pop_back();
  }
  constexpr std::string_view kEnd = "_ratio";
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [key, value] : record.items()) {
    if (!key.ends_with(kEnd)) continue;
    const std::string group = key.substr(0, key.size() - kEnd.size());
    auto& groups = history.update_ratio;
    auto of = std::ranges::find(groups, group, &std::pair<std::string, std::vector<double>>::first);
    if (of == groups.end()) of = groups.insert(of, {group, {}});
    of->second.resize(history.update_step.size(), kUnknown);
    of->second.push_back(number(record, key));
  }
  history.update_step.push_back(step);
  for (auto& [group, ratios] : history.update_ratio)
    ratios.resize(history.update_step.size(), kUnknown);
}

void add_layers(const nlohmann::json& record, std::int64_t step, RunHistory& history) {
  while (!history.layers_step.empty() && history.layers_step.back() >= step) {
    history.layers_step.pop_back();
    history.layer_ratio.pop_back();
  }
  const auto ratios = record.find("layer_ratio");
  if (ratios == record.end() || !ratios->is_array()) return;
  history.layers_step.push_back(step);
  std::vector<double>& values = history.layer_ratio.emplace_back();
  for (const nlohmann::json& ratio : *ratios)
    values.push_back(ratio.is_number() ? ratio.get<double>()
                                       : std::numeric_limits<double>::quiet_NaN());
}

void add_sample(const nlohmann::json& record, std::int64_t step, RunHistory& history) {
  while (!history.samples.empty() && history.samples.back().step >= step)
    history.samples.pop_back();
  history.samples.push_back({step, text(record, "text")});
}

void add_alarm(const nlohmann::json& record, std::int64_t step, RunHistory& history) {
  while (!history.alarms.empty() && history.alarms.back().step > step)
    history.alarms.pop_back();
  history.alarms.push_back({step, text(record, "alarm"), text(record, "text")});
}

}  // namespace

bool is_bookkeeping(std::string_view option) {
  static const std::set<std::string_view> asides = [] {
    std::set<std::string_view> out = {"data", "val-data", "gemm-table", "verify-sync-every"};
    trainer::TrainOptions options;
    for (const trainer::OptionRow& row : trainer::option_table(options))
      if (row.group == trainer::kRunGroup) out.insert(row.name);
    return out;
  }();
  return asides.contains(option);
}

bool set_facts(std::string json, RunHistory& history) {
  history.facts.clear();
  history.tokenizer.clear();
  history.held_out.clear();
  if (json.empty()) return true;
  const nlohmann::json facts = try_strict_json(json);
  if (!facts.is_object()) return false;
  history.facts = std::move(json);
  history.tokenizer = text(facts, "tokenizer");
  const auto data = facts.find("data");
  if (data == facts.end() || !data->is_object()) return true;
  history.held_out =
      fmt::format("{} tokens of fingerprint {}", data->value("val_tokens", nlohmann::json()).dump(),
                  data->value("val_fingerprint", nlohmann::json()).dump());
  if (const std::string id = text(*data, "tokenizer"); !id.empty())
    history.held_out += ", tokenizer " + id;
  return true;
}

bool add_record(std::string_view line, RunHistory& history) {
  if (std::optional<TrainRecord> record = parse_train_record(line)) {
    add_train(std::move(*record), history);
    return true;
  }
  const nlohmann::json record = try_strict_json(line);
  if (!record.is_object()) return false;
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return false;
  const auto at = step->get<std::int64_t>();
  if (at < 0 || static_cast<double>(at) > trainer::kMaxSteps) return false;
  const std::string kind = text(record, "kind");
  if (kind == "train") add_train(train_record(record, at), history);
  if (kind == "eval") add_evaluation(record, at, history);
  if (kind == "update") add_update(record, at, history);
  if (kind == "matrices") add_layers(record, at, history);
  if (kind == "sample") add_sample(record, at, history);
  if (kind == "alarm") add_alarm(record, at, history);
  return true;
}

}  // namespace muo::kit
