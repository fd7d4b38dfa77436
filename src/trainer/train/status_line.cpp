#include "trainer/train/status_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

bool is_bounded(const TrainingProgress& p) { return p.iterations > 0; }

// "120/1000", or "120" if the number of steps is not known.
std::string steps_text(const TrainingProgress& p) {
  if (!is_bounded(p)) return fmt::format("{}", p.done);
  const std::string total = std::to_string(p.iterations);
  return fmt::format("{:>{}}/{}", p.done, total.size(), total);
}

// The share of the run that is done, by steps or by time, whichever is further.
double share_done(const TrainingProgress& p) {
  const double by_steps =
      is_bounded(p) ? static_cast<double>(p.done) / static_cast<double>(p.iterations) : 0;
  return std::clamp(std::max(by_steps, p.time_budget > 0 ? p.seconds / p.time_budget : 0), 0.0,
                    1.0);
}

std::string time_left(const TrainingProgress& p) {
  double left = std::numeric_limits<double>::infinity();
  if (is_bounded(p))
    left = static_cast<double>(std::max<std::int64_t>(0, p.iterations - p.done)) * p.step_ms / 1000;
  if (p.time_budget > 0) left = std::min(left, std::max(0.0, p.time_budget - p.seconds));
  return "ETA " + duration_text(left);
}

}  // namespace

std::string progress_text(const TrainingProgress& p) {
  std::string out = fmt::format("step {}  loss {:.4f}", steps_text(p), p.loss);
  if (p.bytes_per_token > 0)
    out += fmt::format("  {:.3f} bits/byte", p.loss / std::log(2.0) / p.bytes_per_token);
  return out + fmt::format("  {} tokens/s  {}", count_text(p.tokens_per_s), time_left(p));
}

std::string status_line(const TrainingProgress& p, int columns, bool unicode) {
  struct Part {
    int importance;
    std::string text, brief;
  };
  const double done = share_done(p);
  const std::string steps = steps_text(p);
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
  const std::string eta = time_left(p);
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
