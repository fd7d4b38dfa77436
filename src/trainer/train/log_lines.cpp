#include "trainer/train/log_lines.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <concepts>
#include <fstream>
#include <system_error>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/json_text.h"
#include "base/strict_json.h"

namespace muo::trainer {
namespace {

class Line {
 public:
  explicit Line(std::string_view kind) { add("kind", kind); }

  void add(std::string_view key, std::int64_t value) { put(key, std::to_string(value)); }
  // `text` must not contain characters that JSON escapes.
  void add(std::string_view key, std::string_view text) { put(key, fmt::format("\"{}\"", text)); }
  // Writes the fewest digits that read back as the same float or double.
  template <std::floating_point Real>
  void add(std::string_view key, Real value) {
    put(key, std::isfinite(value) ? fmt::format("{}", value) : "null");
    nonfinite_ = nonfinite_ || !std::isfinite(value);
  }
  void add(std::string_view key, std::optional<double> value) {
    value ? add(key, *value) : put(key, "null");
  }
  std::string finish() { return text_ + (nonfinite_ ? R"(,"nonfinite":true})" : "}"); }

 private:
  void put(std::string_view key, std::string_view json) {
    text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "{" : ",", key, json);
  }

  std::string text_;
  bool nonfinite_ = false;
};

// True if a run that starts at `step` will write this record again. An evaluation or a sample at
// `step` itself is rewritten only if it is missing (lost_work()), so an existing record is kept.
bool will_be_rewritten(const nlohmann::json& record, std::int64_t step) {
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
    return true;  // an incomplete line of an earlier attempt
  const auto at = record["step"].get<std::int64_t>();
  const nlohmann::json kind = record.value("kind", nlohmann::json());
  const bool between_steps = kind == "eval" || kind == "sample";
  return between_steps && step > 0 ? at > step : at >= step;
}

}  // namespace

std::string train_line(const MetricsRecord& record, std::int64_t tokens, const StepSpeed& speed,
                       std::string_view bad_number) {
  Line line("train");
  line.add("step", record.step);
  line.add("tokens", tokens);
  line.add("loss", record.loss);
  line.add("lr_multiplier", record.lr_multiplier);
  line.add("muon_momentum", record.muon_momentum);
  line.add("muon_weight_decay", record.muon_weight_decay);
  line.add("grad_norm", record.grad_norm);
  line.add("step_ms", speed.step_ms);
  line.add("tokens_per_s", speed.tokens_per_s);
  line.add("mfu", speed.mfu);
  if (speed.power) {
    line.add("watts", speed.power->watts);
    line.add("clock_mhz", speed.power->clock_mhz);
    line.add("joules", speed.power->joules);
  }
  const bool outlier = record.verdict == Verdict::kOutlier;
  if (record.committed == 0)
    line.add("skipped", std::string_view(outlier ? "outlier" : "nonfinite"));
  if (!bad_number.empty()) line.add("bad_number", bad_number);
  if (outlier) {
    line.add("loss_deviations", record.loss_deviations);
    line.add("norm_deviations", record.norm_deviations);
  }
  if (record.gradient_scale < 1) line.add("gradient_scale", record.gradient_scale);
  return line.finish();
}

std::string pace_line(const Pace& pace, double seconds) {
  Line line("pace");
  line.add("step", pace.from);
  line.add("position", pace.position);
  line.add("per_step", pace.per_step);
  line.add("seconds", seconds);
  return line.finish();
}

std::string eval_line(std::int64_t step, double val_loss, std::optional<double> val_bpb) {
  Line line("eval");
  line.add("step", step);
  line.add("val_loss", val_loss);
  line.add("val_bpb", val_bpb);
  return line.finish();
}

std::string update_line(const UpdateSizes& sizes) {
  Line line("update");
  line.add("step", sizes.step);
  for (const auto& [group, is_scalars, size] : sizes.groups) {
    line.add(concat(group, "_rms"), size.rms);
    line.add(concat(group, "_ratio"), size.ratio);
    if (size.u_rms) line.add(concat(group, "_u_rms"), *size.u_rms);
  }
  return line.finish();
}

std::string matrices_line(const UpdateSizes& sizes) {
  nlohmann::ordered_json line = {{"kind", "matrices"}, {"step", sizes.step}};
  const auto number = [](std::optional<double> value) {
    return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nullptr;
  };
  for (const UpdateSize& layer : sizes.layers)
    line["layer_ratio"].push_back(number(layer.ratio));
  for (const auto& [name, size] : sizes.matrices) {
    line["rms"][name] = number(size.rms);
    line["ratio"][name] = number(size.ratio);
    line["u_rms"][name] = number(size.u_rms);
  }
  return line.dump();
}

std::string alarm_line(std::int64_t step, std::string_view kind, std::string_view text) {
  const nlohmann::ordered_json line = {
      {"kind", "alarm"}, {"step", step}, {"alarm", kind}, {"text", text}};
  return json_text(line);
}

std::string sample_line(std::int64_t step, std::string_view text) {
  const nlohmann::ordered_json line = {{"kind", "sample"}, {"step", step}, {"text", text}};
  return json_text(line);
}

void drop_records_from(const std::filesystem::path& file, std::int64_t step) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return;  // a pipe or /dev/null has no records
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);)
    if (!will_be_rewritten(try_strict_json(line), step) && !in.eof()) kept += line + '\n';
  if (kept.size() == std::filesystem::file_size(file)) return;
  replace_file(file, kept);
}

}  // namespace muo::trainer
