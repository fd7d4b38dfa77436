#include "app/train/metrics_line.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace muo {
namespace {

class Line {
 public:
  explicit Line(std::string_view kind) : text_(fmt::format(R"({{"kind":"{}")", kind)) {}

  void add(std::string_view key, std::int64_t value) {
    text_ += fmt::format(R"(,"{}":{})", key, value);
  }
  // Without characters that JSON escapes.
  void add_text(std::string_view key, std::string_view value) {
    text_ += fmt::format(R"(,"{}":"{}")", key, value);
  }
  // float or double: the shortest digits that read back as the same value of that type.
  template <class Real>
  void add_real(std::string_view key, Real value) {
    if (std::isfinite(value)) {
      text_ += fmt::format(R"(,"{}":{})", key, value);
    } else {
      add_null(key);
      nonfinite_ = true;
    }
  }
  void add_optional(std::string_view key, std::optional<double> value) {
    if (value) {
      add_real(key, *value);
    } else {
      add_null(key);
    }
  }
  std::string finish() { return text_ + (nonfinite_ ? R"(,"nonfinite":true})" : "}"); }

 private:
  void add_null(std::string_view key) { text_ += fmt::format(R"(,"{}":null)", key); }

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
  line.add_real("loss", record.loss);
  line.add_real("lr_multiplier", record.lr_multiplier);
  line.add_real("muon_momentum", record.muon_momentum);
  line.add_real("muon_weight_decay", record.muon_weight_decay);
  line.add_real("grad_norm", record.grad_norm);
  line.add_real("step_ms", step_ms);
  line.add_real("tokens_per_s", tokens_per_s);
  line.add_optional("mfu", mfu);
  const bool outlier = record.verdict == Verdict::kOutlier;
  if (record.committed == 0) line.add_text("skipped", outlier ? "outlier" : "nonfinite");
  if (!bad_number.empty()) line.add_text("bad_number", bad_number);
  if (outlier) {
    line.add_real("loss_deviations", record.loss_deviations);
    line.add_real("norm_deviations", record.norm_deviations);
  }
  if (record.gradient_scale < 1) line.add_real("gradient_scale", record.gradient_scale);
  return line.finish();
}

std::string eval_line(std::int64_t step, double val_loss, std::optional<double> val_bpb) {
  Line line("eval");
  line.add("step", step);
  line.add_real("val_loss", val_loss);
  line.add_optional("val_bpb", val_bpb);
  return line.finish();
}

}  // namespace muo
