#include "trainer/run/pacing.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/strict_json.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {
namespace {

using nlohmann::json;

constexpr std::int64_t kUntypical = 3;  // first steps
constexpr std::int64_t kBetween = 10;   // steps between decisions
constexpr double kFewLeft = 20;         // steps, each of which has a decision

}  // namespace

Pacing::Pacing(const RunConfig& config)
    : repeated_(config.paces),
      tokens_(config.token_count()),
      clock_(config.trained.clock),
      first_(config.trained.steps),
      done_(first_) {
  clock_.budget = config.options.batch.time_budget.value_or(Duration{}).seconds;
  clock_.pace = config.hyper.pace;
}

void Pacing::add(std::int64_t steps, double seconds) {
  if (done_ == first_ + 1) recent_ = {};  // forgets the first step
  clock_.spent += seconds;
  recent_.add(seconds / tokens_.between<double>(done_, done_ + steps), static_cast<double>(steps));
  done_ += steps;
}

double Pacing::steps_in(double seconds, std::int64_t step) const {
  double tokens = seconds / recent_.mean(), steps = 0;
  for (const TokenCount::Stage& next : tokens_.stages) {
    if (next.from <= step) continue;
    const auto until = tokens_.between<double>(step, next.from);
    if (tokens <= until) break;
    tokens -= until;
    steps += static_cast<double>(next.from - step);
    step = next.from;
  }
  return steps + tokens / static_cast<double>(tokens_.of_step(step));
}

Pacing::Decision Pacing::decide(std::int64_t step, double until) {
  if (!repeated_.empty()) {
    const auto found = std::ranges::find(repeated_, step, &Pace::from);
    if (found == repeated_.end() || found->from == clock_.pace.from) return {};
    return change_to(*found);
  }
  if (clock_.budget <= 0) return {};
  const double step_seconds = recent_.mean() * static_cast<double>(tokens_.of_step(step));
  // Steps that a GPU has not finished yet take the mean time.
  const double spent = clock_.spent + recent_.mean() * tokens_.between<double>(done_, step);
  const double left = clock_.budget - spent;
  if (left > step_seconds / 2 && until - spent <= step_seconds / 2) return {.is_over = true};
  if (left <= step_seconds / 2) return change_to({.from = step, .position = 1}, true);
  if (step < first_ + kUntypical || done_ == first_) return {};
  const double steps_left = std::max(1.0, std::round(steps_in(left, step)));
  if (decided_ >= 0 && step < decided_ + kBetween && steps_left >= kFewLeft) return {};
  decided_ = step;
  const double position = clock_.pace.at(step);
  return change_to({.from = step, .position = position, .per_step = (1 - position) / steps_left});
}

Pacing::Decision Pacing::change_to(const Pace& pace, bool is_over) {
  clock_.pace = pace;
  return {.is_over = is_over, .pace = pace};
}

std::vector<Pace> read_paces(const std::filesystem::path& metrics) {
  const auto refuse = [&](std::string_view reason) {
    throw InputError(fmt::format("--positions-from {}: {}", metrics.string(), reason));
  };
  std::ifstream file(metrics);
  if (!file) refuse("cannot be read: give the metrics.jsonl of a run with --time-budget");
  std::vector<Pace> paces;
  std::int64_t end = 0;
  for (std::string line; std::getline(file, line);) {
    const json record = try_strict_json(line);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
      continue;
    const auto step = record["step"].get<std::int64_t>();
    const json kind = record.value("kind", json());
    if (kind == "train") end = std::max(end, step + 1);
    if (kind != "pace") continue;
    const json position = record.value("position", json()),
               per_step = record.value("per_step", json());
    if (!position.is_number() || !per_step.is_number())
      refuse(fmt::format("the pace of step {} has no position or no per_step", step));
    const Pace pace = {step, position.get<double>(), per_step.get<double>()};
    if (!paces.empty() && pace == paces.back()) continue;  // logged again when the run was resumed
    if (step < 0 || (!paces.empty() && step <= paces.back().from) || !(pace.position >= 0) ||
        !(pace.position <= 1) || !(pace.per_step >= 0))
      refuse(fmt::format("the pace of step {} is damaged", step));
    paces.push_back(pace);
  }
  if (paces.empty()) refuse("has no paces: it is not the log of a run with --time-budget");
  if (end > paces.back().from) paces.push_back({end, paces.back().at(end), 0});
  return paces;
}

}  // namespace muo::trainer
