#include "kit/sweep/transfer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/json_text.h"
#include "kit/sweep/paired_test.h"
#include "trainer/options/option_row.h"

namespace muo::kit {
namespace {

// Values further than this factor from the best one are left out of a fit: over a wide range,
// losses are no parabola.
constexpr double kMaxFactor = 4;
constexpr std::size_t kMinValues = 4;
constexpr std::size_t kMinDepths = 3;

// The least-squares fit of one depth, without its variance: score = a(seed) + b x + c x², where
// x = ln(value / origin).
struct Parabola {
  double origin = 1;
  double b = 0, c = 0;
  double var_b = 0, var_c = 0, cov_bc = 0;  // in units of the residual variance
  double residual = 0;                      // sum of squares
  int freedom = 0;
  std::map<std::string, double> offsets;  // a, by seed

  [[nodiscard]] double optimum() const { return -b / (2 * c); }  // x
  // Variance of the optimum, to first order.
  [[nodiscard]] double variance() const {
    const double x = optimum();
    return (var_b / 4 + x * cov_bc + x * x * var_c) / (c * c);
  }
};

std::map<double, double> means_by_value(const DepthScores& scores) {
  std::map<double, std::pair<double, int>> sums;
  std::set<double> diverged;
  for (const DepthScores::Run& run : scores.runs) {
    if (!run.score) {
      diverged.insert(run.value);
      continue;
    }
    auto& [sum, count] = sums[run.value];
    sum += *run.score;
    ++count;
  }
  std::map<double, double> means;
  for (const auto& [value, each] : sums)
    if (!diverged.contains(value)) means[value] = each.first / each.second;
  return means;
}

// Fits the runs whose values are in [low, high]. Regressors and scores are taken relative to their
// means over a seed's runs, so each seed has an offset of its own.
Parabola fit(const DepthScores& scores, double low, double high, double origin) {
  struct Row {
    double x, y;
  };
  std::map<std::string, std::vector<Row>> by_seed;
  for (const DepthScores::Run& run : scores.runs)
    if (run.score && run.value >= low && run.value <= high)
      by_seed[run.seed].push_back({std::log(run.value / origin), *run.score});
  double uu = 0, uv = 0, vv = 0, uy = 0, vy = 0, yy = 0, count = 0;
  std::map<std::string, std::array<double, 3>> means;  // of x, x² and y
  for (const auto& [seed, rows] : by_seed) {
    const auto n = static_cast<double>(rows.size());
    auto& [x, xx, y] = means[seed];
    for (const Row& row : rows) {
      x += row.x / n;
      xx += row.x * row.x / n;
      y += row.y / n;
    }
    for (const Row& row : rows) {
      const double u = row.x - x, v = row.x * row.x - xx, w = row.y - y;
      uu += u * u;
      uv += u * v;
      vv += v * v;
      uy += u * w;
      vy += v * w;
      yy += w * w;
    }
    count += n;
  }
  Parabola out;
  out.origin = origin;
  const double determinant = uu * vv - uv * uv;
  out.b = (vv * uy - uv * vy) / determinant;
  out.c = (uu * vy - uv * uy) / determinant;
  out.var_b = vv / determinant;
  out.var_c = uu / determinant;
  out.cov_bc = -uv / determinant;
  out.residual = std::max(0.0, yy - out.b * uy - out.c * vy);
  out.freedom = static_cast<int>(count) - static_cast<int>(by_seed.size()) - 2;
  for (const auto& [seed, mean] : means)
    out.offsets[seed] = mean[2] - out.b * mean[0] - out.c * mean[1];
  return out;
}

std::optional<Parabola> fit_near_best(const DepthScores& scores, DepthOptimum& out) {
  const std::map<double, double> means = means_by_value(scores);
  if (means.empty()) {
    out.problem = "no run has a result";
    return std::nullopt;
  }
  const auto best = std::ranges::min_element(means, {}, &std::pair<const double, double>::second);
  if (best == means.begin() || std::next(best) == means.end()) {
    const bool lowest = best == means.begin();
    out.problem =
        fmt::format("the best value is the {}, {:.3g}: add {} ones",
                    lowest ? "smallest" : "largest", best->first, lowest ? "smaller" : "larger");
    return std::nullopt;
  }
  const auto first = means.lower_bound(best->first / kMaxFactor);
  const auto last = std::prev(means.upper_bound(best->first * kMaxFactor));
  const auto values = static_cast<std::size_t>(std::distance(first, last)) + 1;
  if (values < kMinValues) {
    out.problem =
        fmt::format("only {} values from {:.3g} to {:.3g}, but a fit needs {}: add some", values,
                    best->first / kMaxFactor, best->first * kMaxFactor, kMinValues);
    return std::nullopt;
  }
  const Parabola parabola = fit(scores, first->first, last->first, best->first);
  if (parabola.freedom < 1) {
    out.problem = "too few runs for a fit: add seeds or values";
    return std::nullopt;
  }
  const double optimum = parabola.origin * std::exp(parabola.optimum());
  if (parabola.c > 0 && (optimum < first->first || optimum > last->first)) {
    out.problem = fmt::format("the fit's optimum, {:.3g}, is outside the values {:.3g} to {:.3g}",
                              optimum, first->first, last->first);
    return std::nullopt;
  }
  return parabola;
}

Estimate estimate(double value, double deviation, double t) {
  return {std::exp(value), std::exp(value - t * deviation), std::exp(value + t * deviation)};
}

// Turns the fit into the depth's optimum. `variance` is that of a score, `t` of the confidence.
void fill(const Parabola& fit, const DepthScores& scores, double variance, double t,
          DepthOptimum& out) {
  out.curvature = fit.c;
  const double x = fit.optimum();
  if (!(fit.c > t * std::sqrt(variance * fit.var_c))) {
    out.problem = "no optimum is told apart from chance: add seeds, or values further apart";
    return;
  }
  out.optimum = estimate(std::log(fit.origin) + x, std::sqrt(variance * fit.variance()), t);
  for (const DepthScores::Run& run : scores.runs)
    if (const auto offset = fit.offsets.find(run.seed); run.score && offset != fit.offsets.end())
      out.runs.push_back({run.value, *run.score - offset->second + fit.c * x * x});
}

struct Line {
  double at_target = 0, slope = 0;                // of ln optimum, by log2(depth / target)
  double at_target_deviation = 0, deviation = 0;  // standard errors
};

Line fit_line(const std::vector<DepthOptimum>& depths, std::int64_t target, double t) {
  double weights = 0, mean_x = 0, mean_y = 0;
  struct Node {
    double x, y, weight;
  };
  std::vector<Node> nodes;
  for (const DepthOptimum& each : depths) {
    const double deviation =
        std::max(1e-9, (std::log(each.optimum.high) - std::log(each.optimum.value)) / t);
    nodes.push_back({std::log2(static_cast<double>(each.depth) / static_cast<double>(target)),
                     std::log(each.optimum.value), 1 / (deviation * deviation)});
    weights += nodes.back().weight;
    mean_x += nodes.back().weight * nodes.back().x;
    mean_y += nodes.back().weight * nodes.back().y;
  }
  mean_x /= weights;
  mean_y /= weights;
  double xx = 0, xy = 0, squares = 0;
  for (const Node& node : nodes) {
    xx += node.weight * (node.x - mean_x) * (node.x - mean_x);
    xy += node.weight * (node.x - mean_x) * (node.y - mean_y);
  }
  Line line{.slope = xy / xx};
  line.at_target = mean_y - line.slope * mean_x;
  for (const Node& node : nodes) {
    const double off = node.y - line.at_target - line.slope * node.x;
    squares += node.weight * off * off;
  }
  const double widened = std::sqrt(std::max(1.0, squares / static_cast<double>(nodes.size() - 2)));
  line.deviation = widened / std::sqrt(xx);
  line.at_target_deviation = widened * std::sqrt(1 / weights + mean_x * mean_x / xx);
  return line;
}

std::string interval_text(const Estimate& estimate) {
  return fmt::format("{:.3g} ({:.3g} to {:.3g})", estimate.value, estimate.low, estimate.high);
}

// True if the optimum of the target's own runs differs from the prediction by no more than both
// intervals explain.
bool agrees(const Transfer& transfer) {
  const Estimate &own = transfer.own->optimum, &predicted = transfer.prediction;
  const double margin =
      std::hypot(std::log(own.high / own.value), std::log(predicted.high / predicted.value));
  return std::abs(std::log(own.value / predicted.value)) <= margin;
}

double number_of(const std::string& text) { return trainer::real_number(text).value_or(0); }

bool is_transferred(const trainer::Axis& axis) {
  return axis.option != "depth" && axis.option != "seed";
}

const trainer::Axis& transferred_axis(const trainer::SweepOptions& options) {
  return *std::ranges::find_if(options.axes, is_transferred);
}

bool is_positive(const trainer::Axis& axis) {
  if (!axis.is_finite()) return axis.low > 0;
  return std::ranges::all_of(axis.values,
                             [](const std::string& text) { return number_of(text) > 0; });
}

}  // namespace

Transfer fit_transfer(const std::vector<DepthScores>& scores, std::int64_t target,
                      double confidence) {
  Transfer out;
  out.target = target;
  out.confidence = confidence;
  std::vector<DepthOptimum> depths;
  std::vector<std::optional<Parabola>> fits;
  double residual = 0;
  int freedom = 0;
  for (const DepthScores& each : scores) {
    depths.emplace_back().depth = each.depth;
    fits.push_back(fit_near_best(each, depths.back()));
    if (!fits.back()) continue;
    residual += fits.back()->residual;
    freedom += fits.back()->freedom;
  }
  const double t = freedom > 0 ? critical_t(1 - confidence, freedom) : 0;
  for (std::size_t i = 0; i < depths.size(); ++i) {
    if (fits[i]) fill(*fits[i], scores[i], residual / freedom, t, depths[i]);
    if (depths[i].depth == target)
      out.own = depths[i];
    else
      out.depths.push_back(depths[i]);
  }
  if (out.depths.size() < kMinDepths) out.problem = "it needs three depths";
  for (const DepthOptimum& each : out.depths)
    if (!each.problem.empty() && out.problem.empty())
      out.problem = fmt::format("depth {}: {}", each.depth, each.problem);
  if (!out.problem.empty()) return out;
  const Line line = fit_line(out.depths, target, t);
  out.prediction = estimate(line.at_target, line.at_target_deviation, t);
  out.drift = estimate(line.slope, line.deviation, t);
  const double margin = std::log(out.prediction.high / out.prediction.value);
  const double curvature = std::ranges::max(out.depths, {}, &DepthOptimum::curvature).curvature;
  out.cost = curvature * margin * margin;
  return out;
}

Transfer transfer_of(const trainer::SweepOptions& options, const SweepPlan& plan,
                     const std::vector<TrialStatus>& status) {
  const std::string option = transferred_axis(options).option;
  std::map<std::int64_t, DepthScores> by_depth;
  bool in_bits = false;
  for (const std::vector<std::size_t>& point : plan.points)
    for (const std::size_t trial : point) {
      const Point& at = plan.trials[trial].point;
      const auto depth = static_cast<std::int64_t>(number_of(value_in(at, "depth")));
      const bool done = status[trial].state == TrialState::kDone;
      if (!done && status[trial].state != TrialState::kDiverged) continue;
      DepthScores& scores = by_depth[depth];
      scores.depth = depth;
      scores.runs.push_back({.value = number_of(value_in(at, option)),
                             .seed = value_in(at, "seed"),
                             .score = done ? status[trial].last.score() : std::nullopt});
      in_bits = in_bits || status[trial].last.val_bpb;
    }
  std::vector<DepthScores> scores;
  for (auto& [depth, each] : by_depth)
    scores.push_back(std::move(each));
  Transfer out = fit_transfer(scores, *options.transfer_to, options.confidence);
  out.option = option;
  out.unit = in_bits ? "bits/byte" : "loss";
  return out;
}

std::string transfer_text(const Transfer& transfer) {
  const std::string percent = fmt::format("{:g} %", 100 * transfer.confidence);
  std::string out =
      fmt::format("transfer of {}, optima with {} intervals:\n", transfer.option, percent);
  const auto line = [&](const DepthOptimum& each) {
    out += fmt::format("  depth {}: {}\n", each.depth,
                       each.problem.empty() ? interval_text(each.optimum) : each.problem);
  };
  for (const DepthOptimum& each : transfer.depths)
    line(each);
  if (!transfer.problem.empty())
    return out + fmt::format("  no prediction for depth {}: {}", transfer.target, transfer.problem);
  const Estimate& drift = transfer.drift;
  out += fmt::format("  factor per doubling of the depth: {}{}\n", interval_text(drift),
                     drift.low <= 1 && drift.high >= 1 ? ", not told apart from 1" : "");
  out += fmt::format(
      "  depth {}, predicted: {}; wherever in this interval the optimum is, {:.3g} costs at most "
      "{:.2g} {} more",
      transfer.target, interval_text(transfer.prediction), transfer.prediction.value, transfer.cost,
      transfer.unit);
  if (transfer.own) {
    out += "\n";
    line(*transfer.own);
    out.pop_back();
    if (transfer.own->problem.empty())
      out += fmt::format(" by its own runs, which {} the prediction",
                         agrees(transfer) ? "agree with" : "contradict");
  }
  return out;
}

std::string transfer_json(const Transfer& transfer) {
  using Json = nlohmann::ordered_json;
  const auto interval = [](const Estimate& each) { return Json{each.value, each.low, each.high}; };
  Json depths = Json::array();
  const auto add = [&](const DepthOptimum& each) {
    Json& json = depths.emplace_back(Json{{"depth", each.depth}});
    if (!each.problem.empty()) return void(json["problem"] = each.problem);
    json["optimum"] = interval(each.optimum);
    json["curvature"] = each.curvature;
    json["runs"] = Json::array();
    for (const DepthOptimum::Excess& run : each.runs)
      json["runs"].push_back({run.value, run.score});
  };
  for (const DepthOptimum& each : transfer.depths)
    add(each);
  if (transfer.own) add(*transfer.own);
  Json out{{"option", transfer.option},      {"unit", transfer.unit},
           {"target", transfer.target},      {"confidence", transfer.confidence},
           {"factor", kMaxFactor},           {"depths", depths},
           {"text", transfer_text(transfer)}};
  if (transfer.problem.empty()) {
    out["prediction"] = interval(transfer.prediction);
    out["drift"] = interval(transfer.drift);
    out["cost"] = transfer.cost;
  }
  return json_text(out, 2) + "\n";
}

void check_transfer(const trainer::SweepOptions& options) {
  if (!options.transfer_to) return;
  const auto depth = std::ranges::find(options.axes, "depth", &trainer::Axis::option);
  const auto target = std::to_string(*options.transfer_to);
  const auto depths = depth == options.axes.end()
                          ? 0
                          : depth->values.size() -
                                static_cast<std::size_t>(std::ranges::count(depth->values, target));
  if (depths < kMinDepths)
    throw trainer::input_error(
        "--transfer-to {}: needs three other depths to predict from, as in --depth 2..4", target);
  if (std::ranges::count_if(options.axes, is_transferred) != 1 ||
      !is_positive(transferred_axis(options)))
    throw trainer::input_error(
        "--transfer-to {}: needs one option with positive numbers besides --depth and --seed, as "
        "in --matrix-lr log:0.01..0.2/6",
        target);
  if (options.halving.factor > 1)
    throw trainer::input_error(
        "--transfer-to {}: halving compares trials of unlike depths: leave out --halving", target);
}

}  // namespace muo::kit
