#include "kit/sweep/trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/shell_word.h"
#include "trainer/options/option_table.h"
#include "trainer/run/backend.h"
#include "trainer/run/run_memory.h"
#include "trainer/train/evaluator.h"

namespace muo::kit {
namespace {

bool splits(const trainer::OptionRow& row) {
  return row.kind == trainer::OptionClass::kCaptured || row.kind == trainer::OptionClass::kShape;
}

// Returns a key that is equal for runs that can share one captured step.
std::string capture_key(const trainer::RunConfig& config) {
  trainer::TrainOptions options = config.resolved();
  std::string key;
  for (const trainer::OptionRow& row : trainer::option_table(options))
    if (splits(row)) key += fmt::format("{}={}\n", row.name, trainer::option_text(row));
  return key;
}

trainer::TrainOptions with_settings(const trainer::TrainOptions& common, const Point& point) {
  trainer::TrainOptions options = common;
  const std::vector<trainer::OptionRow> rows = trainer::option_table(options);
  for (const Setting& setting : point)
    trainer::set_option(*std::ranges::find(rows, setting.option, &trainer::OptionRow::name),
                        std::array{setting.value}, "--" + setting.option);
  return options;
}

void require_validation_data(const data::Corpus& corpus) {
  if (corpus.val == nullptr || corpus.val->size() < 2)
    throw InputError("--val-data: a sweep needs validation data to compare trials: give a path");
}

// All trials run in one process, which has one choice of GEMM algorithms, so --tune in one trial
// would affect the others.
trainer::RunConfig resolve_trial(const trainer::TrainOptions& options, const data::Corpus& corpus) {
  if (const std::optional<trainer::Tune> tune = options.numbers.tune;
      tune.value_or(trainer::Tune::kOff) != trainer::Tune::kOff)
    throw trainer::input_error("--tune {}: not supported by sweeps: give --gemm-table FILE",
                               name_of(*tune));
  trainer::RunConfig config = trainer::resolve(options, corpus);
  config.tune = trainer::Tune::kOff;
  return config;
}

// The shares of a trial's time at which trials are halved: FACTOR times apart, from at least a
// tenth on, as the first twentieth is warm-up.
std::vector<double> rung_shares(std::int64_t factor) {
  std::vector<double> shares = {1};
  if (factor < 2) return shares;
  const auto by = static_cast<double>(factor);
  do
    shares.push_back(shares.back() / by);
  while (shares.back() / by >= 0.1);
  std::ranges::reverse(shares);
  return shares;
}

// Throws InputError for options that the external optimizer replaces.
void refuse_with_ask_tell(const trainer::SweepOptions& options) {
  if (!options.axes.empty())
    throw trainer::input_error(
        "--ask-tell: values of --{} come with each trial: give only one, as the default",
        options.axes.front().option);
  if (options.trials)
    throw InputError("--ask-tell: the sweep ends when standard input does: leave out --trials");
  if (options.budget)
    throw InputError("--ask-tell: the number of trials is not known: give --time-budget for each");
  if (options.finalists > 1)
    throw InputError("--ask-tell: the external optimizer chooses points: leave out --finalists");
  if (options.halving.factor > 1)
    throw InputError("--ask-tell: the external optimizer stops trials: leave out --halving");
}

}  // namespace

SweepPlanner::SweepPlanner(const trainer::SweepOptions& options, const data::Corpus& corpus,
                           std::span<const Point> before)
    : options_(options), corpus_(corpus) {
  choose_devices();
  if (options.ask_tell) {
    refuse_with_ask_tell(options);
    plan_.trials.reserve(kMaxTrials);
    plan_.groups.reserve(kMaxTrials);
    trainer::RunConfig config = resolve_trial(common_, corpus_);
    require_validation_data(corpus_);
    const std::string key = capture_key(config);
    make_group(config, key);
    return;
  }
  std::map<Point, std::size_t> numbers;
  for (const Point& point : before)
    numbers.emplace(sorted(point), numbers.size());
  std::vector<Point> points = choose_points(options_.axes, options_.trials, options_.search_seed);
  std::ranges::stable_sort(points, {}, [&](const Point& point) {
    const auto found = numbers.find(sorted(point));
    return found == numbers.end() ? numbers.size() : found->second;
  });
  divide_budget(points.size());
  const auto finals = static_cast<std::size_t>(options_.finalists * kLooks.back());
  plan_.trials.reserve(points.size() + (options_.finalists > 1 ? finals : 0));
  for (Point& point : points)
    plan_one({}, std::move(point));
  if (plan_.groups.empty())
    throw InputError("every trial is refused: " + plan_.trials.front().refusal);
  list_splitting_options();
  collect_points();
  choose_rungs();
}

std::size_t SweepPlanner::add(std::string name, Point point) {
  plan_one(std::move(name), std::move(point));
  const std::size_t number = plan_.trials.size() - 1;
  if (plan_.trials[number].config) plan_.points.push_back({number});
  return number;
}

std::size_t SweepPlanner::add_final(Point point) {
  plan_one({}, std::move(point));
  plan_.trials.back().is_final = true;
  return plan_.trials.size() - 1;
}

void SweepPlanner::choose_devices() {
  trainer::DeviceOptions all = options_.train.devices;
  std::vector<std::string> notes;
  const GroupOptions group = trainer::choose_devices(all, notes);
  const bool host = group.plugin == nullptr;
  if (*all.count % options_.devices_per_trial != 0)
    throw trainer::input_error("--devices-per-trial {}: does not divide --devices {}",
                               options_.devices_per_trial, *all.count);
  if (host && options_.trials_per_device > 1)
    throw InputError("--trials-per-device: the host has virtual devices only; give --devices");
  if (options_.trials_per_device > 1 &&
      (options_.devices_per_trial > 1 || options_.train.devices.ranks_per_device > 1))
    throw InputError(
        "--trials-per-device: collectives of several trials on one GPU could deadlock: give it "
        "without --devices-per-trial and --ranks-per-device");
  common_ = options_.train;
  common_.devices.count = options_.devices_per_trial;
  plan_.workers =
      static_cast<int>(*all.count / options_.devices_per_trial * options_.trials_per_device);
  plan_.trials_per_device = static_cast<int>(options_.trials_per_device);
}

// Appends the trial even if it is refused.
void SweepPlanner::plan_one(std::string name, Point point) {
  Trial trial;
  trial.name = std::move(name);
  trial.point = std::move(point);
  try {
    trial.options = with_settings(common_, trial.point);
    trainer::RunConfig config = resolve_trial(trial.options, corpus_);
    require_validation_data(corpus_);
    const std::string key = capture_key(config);
    join_group(trial, std::move(config), key);
  } catch (const InputError& error) {
    trial.refusal = error.what();
  }
  plan_.trials.push_back(std::move(trial));
}

// Trials with equal keys share the memory plan, or its refusal.
void SweepPlanner::join_group(Trial& trial, trainer::RunConfig config, const std::string& key) {
  if (const auto refused = refused_.find(key); refused != refused_.end())
    throw InputError(refused->second);
  const auto found = groups_.find(key);
  if (found == groups_.end()) {
    try {
      make_group(config, key);
    } catch (const InputError& error) {
      refused_[key] = error.what();
      throw;
    }
  } else {
    const trainer::RunConfig& first = plan_.groups[found->second].run.config;
    config.step = first.step;
    config.model.head_chunk_bytes = first.model.head_chunk_bytes;
  }
  trial.group = groups_.at(key);
  plan_.is_timed = plan_.is_timed || config.options.batch.time_budget;
  trial.config = std::move(config);
}

void SweepPlanner::make_group(trainer::RunConfig& config, const std::string& key) {
  const bool host = config.group.plugin == nullptr;
  if (plan_.groups.empty()) {
    const int sharing = host ? plan_.workers : plan_.trials_per_device;
    budget_ = trainer::memory_budget(config, sharing);
    plan_.worker_memory = {.device = budget_.per_rank(), .host = budget_.process / plan_.workers};
  }
  MemoryPlan memory = trainer::fit_memory(config, budget_.to_plan);
  trainer::require_memory(config, memory, budget_.per_rank());
  trainer::require_batches(config, plan_.worker_memory.host);
  const int world = config.world();
  const std::int64_t planned = memory.rank_bytes(world);
  CaptureGroup group{.run = trainer::plan_run(config, std::move(memory))};
  std::int64_t& staging_bytes = group.run.staging_bytes;
  if (options_.train.save.mode != trainer::SaveMode::kWait) {
    const std::int64_t staging = trainer::plan_staging_memory(group.run.params, group.run.plan);
    if ((staging + (host ? planned : 0)) * world * plan_.workers <= budget_.process)
      staging_bytes = staging;
  }
  group.memory_kept = {.device = host ? 0 : planned + trainer::kLibraryMemory,
                       .host = (staging_bytes + (host ? planned : 0)) * world +
                               trainer::process_base(world, staging_bytes > 0)};
  plan_.groups.push_back(std::move(group));
  groups_[key] = plan_.groups.size() - 1;
}

void SweepPlanner::list_splitting_options() {
  trainer::TrainOptions scratch;
  const std::vector<trainer::OptionRow> rows = trainer::option_table(scratch);
  for (const trainer::Axis& axis : options_.axes)
    if (splits(*std::ranges::find(rows, axis.option, &trainer::OptionRow::name)))
      plan_.splitting.push_back("--" + axis.option);
}

// Refused trials do not belong to any point.
void SweepPlanner::collect_points() {
  std::map<Point, std::size_t> found;
  for (std::size_t i = 0; i < plan_.trials.size(); ++i) {
    if (!plan_.trials[i].config) continue;
    const auto [point, is_new] =
        found.emplace(without_seed(plan_.trials[i].point), plan_.points.size());
    if (is_new) plan_.points.emplace_back();
    plan_.points[point->second].push_back(i);
  }
}

void SweepPlanner::choose_rungs() {
  const trainer::HalvingOptions& halving = options_.halving;
  if (halving.factor < 2) {
    if (halving.asynchronous) throw InputError("--asynchronous: give --halving as well");
    if (halving.min_steps) throw InputError("--min-steps: give --halving as well");
    return;
  }
  std::optional<std::int64_t> length;
  std::int64_t warmup = 0;
  for (const Trial& trial : plan_.trials) {
    if (!trial.config) continue;
    warmup = std::max(warmup, trial.config->hyper.warmup_steps);
    if (length.value_or(length_of(*trial.config)) != length_of(*trial.config))
      throw trainer::input_error(
          "--halving: needs trials of equal length, but some have {} {} and others {}: give "
          "--num-iterations or --time-budget",
          *length, plan_.is_timed ? "ms" : "steps", length_of(*trial.config));
    length = length_of(*trial.config);
  }
  if (plan_.is_timed) {
    if (halving.min_steps)
      throw InputError(
          "--min-steps: with a time budget, halving is at shares of the time: leave it out");
    for (const double share : rung_shares(halving.factor))
      plan_.rungs.push_back(std::llround(share * static_cast<double>(*length)));
    return;
  }
  const std::int64_t steps = *length, factor = halving.factor;
  // During the warm-up, differences of losses are mostly noise.
  const std::int64_t settled = 2 * warmup;
  const bool has_room = settled < steps;
  const std::int64_t first = halving.min_steps.value_or(
      std::max({std::int64_t{1}, steps / (factor * factor * factor), has_room ? settled : 0}));
  if (first >= steps)
    throw trainer::input_error("--min-steps {}: the trials have {} steps: give fewer", first,
                               steps);
  if (first <= warmup)
    plan_.warning = fmt::format(
        "warning: the first halving, after step {}, is within the {} steps of warm-up, where "
        "losses are mostly noise: give fewer --warmup-steps{}",
        first, warmup, has_room ? fmt::format(", or --min-steps {} or more", settled) : "");
  for (std::int64_t rung = first; rung < steps; rung *= factor)
    plan_.rungs.push_back(rung);
  plan_.rungs.push_back(steps);
}

// Sets the time budget with which `trials` trials, halved as they will be, take the sweep's.
void SweepPlanner::divide_budget(std::size_t trials) {
  if (!options_.budget) return;
  if (common_.batch.time_budget)
    throw InputError("--sweep-budget: it sets --time-budget: give only one of them");
  std::size_t seeds = 1;
  for (const trainer::Axis& axis : options_.axes)
    if (axis.option == "seed" && axis.is_finite()) seeds = axis.values.size();
  const auto factor = static_cast<std::size_t>(options_.halving.factor);
  std::size_t points = std::max<std::size_t>(1, trials / seeds);
  double waves = 0, before = 0;  // in lengths of a trial
  for (const double share : rung_shares(options_.halving.factor)) {
    const auto workers = static_cast<std::size_t>(plan_.workers);
    waves += static_cast<double>((points * seeds + workers - 1) / workers) * (share - before);
    before = share;
    points = std::max<std::size_t>(1, points / factor);
  }
  const double milliseconds = std::floor(1000 * options_.budget->seconds / waves);
  if (milliseconds < 1)
    throw trainer::input_error("--sweep-budget {}: too short for {} trials: give more time",
                               to_text(*options_.budget), trials);
  common_.batch.time_budget = Duration{milliseconds / 1000};
}

std::int64_t length_of(const trainer::RunConfig& config) {
  const std::optional<Duration>& budget = config.options.batch.time_budget;
  return budget ? std::llround(1000 * budget->seconds) : config.iterations();
}

Point without_seed(Point point) {
  std::erase_if(point, [](const Setting& setting) { return setting.option == "seed"; });
  return point;
}

std::string value_in(const Point& point, std::string_view option) {
  const auto found = std::ranges::find(point, option, &Setting::option);
  return found == point.end() ? std::string() : found->value;
}

std::vector<std::string> varied_options(const SweepPlan& plan) {
  std::vector<std::string> out;
  for (const Trial& trial : plan.trials)
    for (const Setting& setting : trial.point)
      if (std::ranges::find(out, setting.option) == out.end()) out.push_back(setting.option);
  return out;
}

std::string train_command(const trainer::TrainOptions& options) {
  trainer::TrainOptions defaults, given = options;
  const std::vector<trainer::OptionRow> plain = trainer::option_table(defaults);
  const std::vector<trainer::OptionRow> rows = trainer::option_table(given);
  std::string out = program_word() + " train";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // The depth is always given: without it a run on a CPU takes the sizes of quick.toml.
    const bool is_default =
        trainer::option_text(rows[i]) == trainer::option_text(plain[i]) && rows[i].name != "depth";
    if (!rows[i].saved || is_default) continue;
    out += fmt::format(" --{}", rows[i].name);
    if (trainer::is_list(rows[i]))
      for (const auto& path : *std::get<std::vector<std::filesystem::path>*>(rows[i].field))
        out += " " + shell_word(path.native());
    else
      out += " " + shell_word(trainer::option_text(rows[i]));
  }
  return out;
}

}  // namespace muo::kit
