#include "trainer/train/status_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/terminal.h"
#include "base/utf8.h"

namespace muo::trainer {
namespace {

std::string bar_text(double done, int cells, bool unicode) {
  const int full = static_cast<int>(cells * done);
  std::string out = unicode ? "" : "[";
  for (int i = 0; i < cells; ++i)
    out += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : "-");
  return out + (unicode ? "" : "]");
}

}  // namespace

std::string progress_text(const TrainingProgress& p) {
  const std::string total = std::to_string(p.iterations);
  std::string out = fmt::format("step {:>{}}/{}  loss {:.4f}", p.done, total.size(), total, p.loss);
  if (p.bytes_per_token > 0)
    out += fmt::format("  {:.3f} bits/byte", p.loss / std::log(2.0) / p.bytes_per_token);
  out += fmt::format("  {} tokens/s", count_text(p.tokens_per_s));
  const auto left = static_cast<double>(std::max<std::int64_t>(0, p.iterations - p.done));
  return out + "  " + eta_text(left, 1, p.step_ms / 1000);
}

std::string status_line(const TrainingProgress& p, int columns, bool unicode) {
  struct Part {
    int importance;
    std::string text, brief;
  };
  const double done = std::clamp(
      static_cast<double>(p.done) / static_cast<double>(std::max<std::int64_t>(1, p.iterations)),
      0.0, 1.0);
  const std::string steps =
      fmt::format("{:>{}}/{}", p.done, std::to_string(p.iterations).size(), p.iterations);
  const auto left = static_cast<double>(std::max<std::int64_t>(0, p.iterations - p.done));
  const std::string speed = count_text(p.tokens_per_s);
  const bool bits = p.bytes_per_token > 0;
  std::vector<Part> parts = {
      {3, bar_text(done, 12, unicode), bar_text(done, 8, unicode)},
      {7, "step " + steps, steps},
      {bits ? 0 : 5, fmt::format("loss {:.4f}", p.loss), fmt::format("loss {:.3f}", p.loss)}};
  if (bits) {
    const std::string text =
        fmt::format("{:.3f} bits/byte", p.loss / std::log(2.0) / p.bytes_per_token);
    parts.push_back({5, text, text});
  }
  parts.push_back({4, speed + " tokens/s", speed + " tok/s"});
  if (p.mfu)
    parts.push_back(
        {2, fmt::format("MFU {:.0f} %", 100 * *p.mfu), fmt::format("MFU {:.0f}%", 100 * *p.mfu)});
  if (p.memory > 0) {
    const std::string memory = count_text(static_cast<double>(p.memory)) + "B";
    parts.push_back({1, memory, memory});
  }
  const std::string eta = eta_text(left, 1, p.step_ms / 1000);
  parts.push_back({6, eta, eta});
  const auto joined = [&](std::string Part::*form) {
    std::string out;
    for (const Part& part : parts)
      out += (out.empty() ? "" : "  ") + part.*form;
    return out;
  };
  if (std::string all = joined(&Part::text); utf8_characters(all) < columns) return all;
  for (;;) {
    std::string out = joined(&Part::brief);
    if (parts.size() == 1 || utf8_characters(out) < columns) return out;
    parts.erase(std::ranges::min_element(parts, {}, &Part::importance));
  }
}

}  // namespace muo::trainer
