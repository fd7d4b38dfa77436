#include "kit/report/text_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "base/terminal.h"
#include "base/text_table.h"
#include "trainer/options/option_row.h"

namespace muo::kit {
namespace {

constexpr int kRows = 6;
constexpr int kMargin = 9;  // columns for the numbers on the left
constexpr int kMinColumns = 24;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool is_empty() const { return low > high; }
};

// Dots, with the origin at the top left: two by four per character in braille, one in ASCII.
class Canvas {
 public:
  Canvas(int columns, bool braille)
      : braille_(braille),
        columns_(columns),
        cells_(static_cast<std::size_t>(columns) * kRows, 0) {}

  [[nodiscard]] int width() const { return columns_ * (braille_ ? 2 : 1); }
  [[nodiscard]] int height() const { return kRows * (braille_ ? 4 : 1); }

  void set(int x, int y) {
    constexpr std::array<std::array<unsigned char, 4>, 2> kDots = {
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    const int cell = braille_ ? y / 4 * columns_ + x / 2 : y * columns_ + x;
    cells_[static_cast<std::size_t>(cell)] |=
        braille_ ? kDots.at(static_cast<std::size_t>(x % 2)).at(static_cast<std::size_t>(y % 4))
                 : 1U;
  }

  [[nodiscard]] std::string row(int y) const {
    std::string out;
    for (int x = 0; x < columns_; ++x) {
      const int cell = y * columns_ + x;
      const unsigned dots = cells_[static_cast<std::size_t>(cell)];
      if (dots == 0) {
        out += ' ';
      } else if (braille_) {  // U+2800 + dots, in UTF-8
        out += '\xE2';
        out += static_cast<char>(0xA0U | (dots >> 6U));
        out += static_cast<char>(0x80U | (dots & 0x3FU));
      } else {
        out += '*';
      }
    }
    return out.erase(out.find_last_not_of(' ') + 1);
  }

 private:
  bool braille_;
  int columns_;
  std::vector<unsigned> cells_;
};

std::string value_text(double value) {
  return std::abs(value) >= 1000 ? count_text(value) : fmt::format("{:.4g}", value);
}

std::string chart(const std::string& title, std::span<const std::int64_t> steps,
                  std::span<const double> values, const TextReportOptions& options) {
  Range all;
  for (const double value : values)
    all.add(value);
  if (all.is_empty()) return {};
  Canvas canvas(std::max(kMinColumns, options.columns) - kMargin - 3, options.braille);
  const std::int64_t first = steps.front(), last = steps.back();
  const auto column = [&](std::int64_t step) {
    const double at =
        last == first ? 0 : static_cast<double>(step - first) / static_cast<double>(last - first);
    return static_cast<std::size_t>(std::lround(at * (canvas.width() - 1)));
  };
  const auto line = [&](double value) {
    const double at = all.high == all.low ? 0.5 : (all.high - value) / (all.high - all.low);
    return static_cast<int>(std::lround(at * (canvas.height() - 1)));
  };
  std::vector<Range> in_column(static_cast<std::size_t>(canvas.width()));
  for (std::size_t i = 0; i < values.size(); ++i)
    in_column[column(steps[i])].add(values[i]);
  for (int x = 0; x < canvas.width(); ++x) {
    const Range& range = in_column[static_cast<std::size_t>(x)];
    if (range.is_empty()) continue;
    for (int y = line(range.high); y <= line(range.low); ++y)
      canvas.set(x, y);
  }
  std::string out = title + '\n';
  for (int y = 0; y < kRows; ++y) {
    const std::string label = y == 0           ? value_text(all.high)
                              : y == kRows - 1 ? value_text(all.low)
                                               : std::string();
    const std::string row = canvas.row(y);
    out += fmt::format("{:>{}} |{}{}\n", label, kMargin, row.empty() ? "" : " ", row);
  }
  return out + fmt::format("{:>{}}   step {} to {}\n", "", kMargin, first, last);
}

std::optional<double> last_finite(const std::vector<double>& values) {
  const auto last = std::find_if(values.rbegin(), values.rend(),
                                 [](double value) { return std::isfinite(value); });
  return last == values.rend() ? std::nullopt : std::optional(*last);
}

std::optional<double> best(const std::vector<double>& values) {
  Range range;
  for (const double value : values)
    range.add(value);
  return range.is_empty() ? std::nullopt : std::optional(range.low);
}

const std::vector<double>& held_out_of(const RunHistory& run) {
  return best(run.val_bpb) ? run.val_bpb : run.val_loss;
}

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

}  // namespace

std::string value_in(const RunSummary& run, const std::string& option) {
  const auto found =
      std::ranges::find(run.options, option, &std::pair<std::string, std::string>::first);
  return found == run.options.end() ? "" : found->second;
}

std::vector<std::string> differing_options(std::span<const RunSummary> runs) {
  std::vector<std::string> out;
  for (const auto& option : runs.front().options) {
    const std::string& name = option.first;
    const auto differs = [&](const RunSummary& run) {
      return value_in(run, name) != option.second;
    };
    if (name != "seed" && !is_bookkeeping(name) && std::ranges::any_of(runs, differs))
      out.push_back(name);
  }
  return out;
}

RunSummary summary_of(const RunHistory& run, const std::string& name) {
  const std::vector<double>&ms = run.of(Series::kStepMs), &held_out = held_out_of(run);
  return {.name = name,
          .options = run.options,
          .held_out = run.held_out,
          .unit = best(run.val_bpb) ? "bits/byte" : "loss",
          .steps = run.step.empty() ? 0 : run.step.back() + 1,
          .evaluated = run.eval_step.empty() ? -1 : run.eval_step.back(),
          .seconds = std::accumulate(ms.begin(), ms.end(), 0.0,
                                     [](double sum, double each) {
                                       return std::isfinite(each) ? sum + each / 1000 : sum;
                                     }),
          .loss = last_finite(run.of(Series::kLoss)),
          .last = last_finite(held_out),
          .best = best(held_out)};
}

std::string trial_table(std::span<const RunSummary> trials) {
  const std::vector<std::string> varied = differing_options(trials);
  const auto point_of = [&](const RunSummary& trial) {
    std::vector<std::string> values = {fmt::format("{}", trial.steps)};
    values.reserve(varied.size() + 1);
    for (const std::string& option : varied)
      values.push_back(value_in(trial, option));
    return values;
  };
  const auto last_of = [](const RunSummary& trial) {
    return trial.last.value_or(std::numeric_limits<double>::infinity());
  };
  std::map<std::vector<std::string>, std::vector<double>> points;
  for (const RunSummary& trial : trials)
    points[point_of(trial)].push_back(last_of(trial));
  const bool seeds = points.size() < trials.size();
  struct Ranked {
    const RunSummary* trial;
    double mean;  // mean of the run's point
  };
  std::vector<Ranked> ranking;
  ranking.reserve(trials.size());
  for (const RunSummary& trial : trials) {
    const std::vector<double>& values = points[point_of(trial)];
    ranking.push_back({&trial, std::accumulate(values.begin(), values.end(), 0.0) /
                                   static_cast<double>(values.size())});
  }
  std::ranges::stable_sort(ranking, {}, [&](const Ranked& each) {
    return std::tuple(-each.trial->steps, each.mean, last_of(*each.trial));
  });
  std::vector<std::string> head = {"trial"};
  head.insert(head.end(), varied.begin(), varied.end());
  if (seeds) head.emplace_back("seed");
  head.insert(head.end(), {"steps", "loss", "held-out " + trials.front().unit});
  if (seeds) head.emplace_back("mean of seeds");
  head.insert(head.end(), {"best", "time"});
  Table table(std::move(head));
  for (const auto& [ranked, mean] : ranking) {
    const RunSummary& trial = *ranked;
    std::vector<std::string> row = {trial.name};
    row.reserve(varied.size() + 8);
    for (const std::string& option : varied)
      row.push_back(printable(trainer::short_value(value_in(trial, option))));
    if (seeds) row.push_back(printable(value_in(trial, "seed")));
    row.insert(row.end(), {fmt::format("{}", trial.steps), cell(trial.loss), cell(trial.last)});
    if (seeds) row.push_back(std::isfinite(mean) ? cell(mean) : "-");
    row.insert(row.end(), {cell(trial.best), duration_text(trial.seconds)});
    table.add(std::move(row));
  }
  return table.text();
}

std::string incomparable_text(std::span<const RunSummary> runs) {
  std::map<std::string, std::vector<std::string>> names;
  for (const RunSummary& run : runs)
    if (!run.held_out.empty()) names[run.held_out].push_back(run.name);
  if (names.size() < 2) return {};
  std::string out = "Their held-out data differ, so their held-out values cannot be compared:\n";
  for (const auto& [data, of] : names)
    out += fmt::format("  {}: {}\n", printable(data), fmt::join(of, ", "));
  return out;
}

std::string text_report(const RunHistory& run, const std::string& name,
                        const TextReportOptions& options) {
  const RunSummary summary = summary_of(run, name);
  std::string out = name + ": ";
  if (run.step.empty()) return out + "no steps\n";
  out += fmt::format("{} steps, {} tokens, {}", summary.steps,
                     count_text(static_cast<double>(run.tokens.back())),
                     duration_text(summary.seconds));
  if (summary.loss) out += fmt::format(", loss {:.4f}", *summary.loss);
  if (summary.best)
    out += fmt::format(", held out {:.4f} {}, best {:.4f}", *summary.last, summary.unit,
                       *summary.best);
  if (!run.skipped.empty()) out += fmt::format(", updates skipped: {}", run.skipped.size());
  if (!run.alarms.empty()) out += fmt::format(", alarms: {}", run.alarms.size());
  out += '\n';
  out += chart("loss, nats per token", run.step, run.of(Series::kLoss), options);
  out += chart("held-out " + summary.unit, run.eval_step, held_out_of(run), options);
  out += chart("tokens/s", run.step, run.of(Series::kTokensPerS), options);
  for (const RunHistory::Alarm& alarm : run.alarms)
    out += printable(alarm.text) + '\n';
  return out;
}

}  // namespace muo::kit
