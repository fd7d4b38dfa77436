#include "trainer/train/log_lines.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <concepts>

#include "base/check.h"
#include "base/json_text.h"

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

}  // namespace

std::string train_line(const MetricsRecord& record, std::int64_t tokens, double step_ms,
                       double tokens_per_s, std::optional<double> mfu,
                       std::string_view bad_number) {
  Line line("train");
  line.add("step", record.step);
  line.add("tokens", tokens);
  line.add("loss", record.loss);
  line.add("lr_multiplier", record.lr_multiplier);
  line.add("muon_momentum", record.muon_momentum);
  line.add("muon_weight_decay", record.muon_weight_decay);
  line.add("grad_norm", record.grad_norm);
  line.add("step_ms", step_ms);
  line.add("tokens_per_s", tokens_per_s);
  line.add("mfu", mfu);
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

}  // namespace muo::trainer
