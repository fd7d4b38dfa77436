#include "app/run_parsers.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/model_json.h"
#include "app/checkpoint/run_directory.h"
#include "app/checkpoint/run_tokenizer.h"
#include "app/options/launch.h"
#include "app/options/option_parser.h"
#include "app/options/option_table.h"
#include "app/run/backend.h"
#include "app/run/described_gpu.h"
#include "app/sweep/find_sweep.h"
#include "app/sweep/search_space.h"
#include "base/check.h"
#include "base/installed_file.h"

namespace muo::app {
namespace {

// What --resume reads a run's or a sweep's options from. One that is empty is not believed: it
// would mean the defaults.
std::filesystem::path written_options(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::file_size(file, error) == 0 && !error)
    throw input_error("--resume: {} is empty, it was damaged: give the run's options by --config",
                      file.string());
  return file;
}

struct Flag {
  const char* name;
  bool* field;
  const char* help;
};

// Takes the model and the tokenizer of --init-from, except for options that are given. Returns
// whether there is one.
bool take_initial_model(const Parser& parser, TrainOptions& train) {
  if (train.run.init_from.empty()) return false;
  // Verified where its weights are loaded (open_init_from).
  const Checkpoint checkpoint(train.run.init_from, {.weights_only = true, .verify = false});
  if (!parser.is_given("tokenizer"))
    if (const auto tokenizer = find_run_tokenizer(checkpoint); !tokenizer.empty())
      train.data.tokenizer = tokenizer.string();
  if (parser.is_given("depth") || parser.is_given("model")) return true;
  const ModelOptions given = train.model;
  const model::GptConfig model = checkpoint_model(checkpoint);
  train.model.set_all(model);
  train.model.preset = model.value_embeddings || model.smear || model.backout ||
                               model.resid_lambdas || model.x0_lambdas
                           ? ModelPreset::kNanochat
                           : ModelPreset::kPlain;
  for (const GptField& field : gpt_fields())
    if (parser.is_given(field.option.name))
      std::visit([&](auto member) { train.model.set(member, given.told.*member); }, field.member);
  return true;
}

// By nanochat's laws the smallest model takes a CPU hours: a run that names no size of the model
// takes quick.toml there. A horizon that is given replaces that of the file.
void choose_sizes(Parser& parser, TrainOptions& train, const TakeValues& take = {}) {
  const bool has_model = take_initial_model(parser, train);
  DeviceOptions devices = train.devices;
  std::vector<std::string> notes;
  const std::filesystem::path quick = installed_file("configs/quick.toml");
  if (quick.empty() || choose_devices(devices, notes).plugin != nullptr) return;
  train.run.sizes = CpuSizes::kLaws;
  for (const char* size : {"depth", "n-layer", "n-embd", "n-head"})
    if (parser.is_given(size)) return;
  parser.apply_config(quick, /*named=*/false, [&](const OptionRow& row, auto values, auto where) {
    return (has_model && row.group == kModelGroup) || (take && take(row, values, where));
  });
  train.run.sizes = CpuSizes::kQuick;
}

// Records the resumed run's batch, which resolve() keeps where the options allow it. Throws
// InputError for another row length.
void take_before(const Parser& parser, const TrainOptions& was, const std::filesystem::path& file,
                 TrainOptions& train) {
  const auto length = &model::GptConfig::seq_len;
  if (train.model.has(length) && was.model.has(length) &&
      train.model.told.seq_len != was.model.told.seq_len)
    throw input_error(
        "--max-seq-len {}: the run that goes on has rows of {} tokens ({}), by which its place in "
        "the data is counted: leave the option out, or start a new run",
        train.model.told.seq_len, was.model.told.seq_len, file.string());
  const BatchOptions& batch = was.batch;
  if (parser.is_given("target-batch-size") && train.batch.target_tokens != batch.target_tokens)
    return;
  train.batch.before = {.world = was.devices.count.value_or(0) * was.devices.ranks_per_device,
                        .device_rows = batch.device_rows,
                        .total_tokens = batch.target_tokens ? batch.total_tokens : std::nullopt};
}

// The options of a run, for what trains it, describes it or measures it; --json where `format` is
// given. The help, if that was asked for. Unless it `has_own_sizes` it may take quick.toml's.
std::optional<Answer> parse_run(const CommandRow& command, std::vector<OptionRow> rows,
                                TrainOptions& train, ReportFormat* format, Arguments arguments,
                                std::initializer_list<Flag> flags = {},
                                const std::function<bool()>& has_own_sizes = {}) {
  // A launched process says with --devices what it brings: the world may be that of the file.
  const bool launched = find_launch().has_value();
  if (launched) std::ranges::find(rows, "devices", &OptionRow::name)->replaces.clear();
  Parser parser(command, std::move(rows));
  std::string config;
  bool json = false;
  parser.add_text("--config", config, "FILE.toml",
                  "read options from a TOML file; the command line overrides it");
  if (format != nullptr) parser.add_flag("--json", json, "print JSON");
  for (const Flag& flag : flags)
    parser.add_flag(flag.name, *flag.field, flag.help);
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  if (json) *format = ReportFormat::kJson;
  std::filesystem::path file;
  if (!config.empty()) {
    file = find_config(config);
  } else if (!train.run.resume.empty()) {
    const RunDirectory resumed{find_run_directory(train).resumed, {}};
    if (!resumed.root.empty() && std::filesystem::exists(resumed.config()))
      file = written_options(resumed.config());
  }
  TrainOptions was;  // of the run that goes on
  if (config.empty() && !file.empty()) {
    load_config(file, read_config(file), option_table(was));
    take_before(parser, was, file, train);
  }
  // A file's devices are those of the world, a launched process' are its own, and so is the way it
  // reaches the others.
  const TakeValues own_devices = [=](const OptionRow& row, auto, auto) {
    return launched && (row.name == "devices" || row.name == "comm");
  };
  // What a run has resolved may not go with what is asked for now: then it follows from that anew.
  const TakeValues follows = [&](const OptionRow& row, std::span<const std::string> values,
                                 std::string_view where) {
    const auto is_given = [&](const char* name) { return parser.is_given(name); };
    const bool common = !values.empty() && values.front() == "common";
    return own_devices(row, values, where) || row.name == "device-batch-size" ||
           (row.name == "total-batch-size" && was.batch.target_tokens) ||
           (row.name == "shard" && is_given("strategy")) ||
           (row.name == "replicas" &&
            (is_given("strategy") || is_given("shard") || (launched && common))) ||
           (row.name == "ranks-per-device" && (launched || train.devices.process_per_device)) ||
           ((row.name == "ranks-per-device" || row.name == "comm") && is_given("backend"));
  };
  if (!file.empty())
    parser.apply_config(file, !config.empty(), config.empty() ? follows : own_devices);
  else if (!has_own_sizes || !has_own_sizes())
    choose_sizes(parser, train);
  return std::nullopt;
}

}  // namespace

Command parse_train(const CommandRow& command, Arguments arguments) {
  TrainOptions train;
  if (auto help = parse_run(command, option_table(train), train, nullptr, arguments,
                            {{"--process-per-device", &train.devices.process_per_device,
                              "one process per device of this machine, instead of one thread"},
                             {"--quiet", &train.run.quiet, "show only warnings and results"},
                             {"--verbose", &train.run.verbose,
                              "also show every automatic decision, as in output.log"}}))
    return *help;
  if (train.run.quiet && train.run.verbose)
    throw InputError("train: --quiet and --verbose: give one of them");
  if (train.data.paths.empty())
    throw InputError("train: --data is required: text files, folders of text, or .bin shards");
  return train;
}

Command parse_sweep(const CommandRow& command, Arguments arguments) {
  SweepOptions options;
  Parser parser(command, option_table(options));
  std::string config;
  parser.add_text("--config", config, "FILE.toml",
                  "read options from a TOML file; the command line overrides it");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  const TakeValues take_axis = [&](const OptionRow& row, std::span<const std::string> values,
                                   std::string_view where) {
    std::optional<Axis> axis = parse_axis(row, values, where);
    if (axis) options.axes.push_back(std::move(*axis));
    return axis.has_value();
  };
  parser.apply(take_axis);
  const RunOptions& run = options.train.run;
  std::filesystem::path file;
  if (!config.empty()) {
    file = find_config(config);
  } else if (!run.resume.empty()) {
    const std::filesystem::path sweep = find_sweep_directory(run);
    if (holds_sweep(sweep)) file = written_options(sweep / "sweep.toml");
  }
  if (!file.empty())
    parser.apply_config(file, !config.empty(), take_axis);
  else
    choose_sizes(parser, options.train, take_axis);
  if (options.train.data.paths.empty())
    throw InputError("sweep: --data is required: text files, folders of text, or .bin shards");
  return options;
}

Command parse_plan(const CommandRow& command, Arguments arguments) {
  PlanOptions options;
  const PredictionOptions& p = options.prediction;
  std::vector<OptionRow> rows = option_table(options);
  OptionRow& gpu = *std::ranges::find(rows, "gpu", &OptionRow::name);
  for (const DescribedGpu& described : described_gpus())
    gpu.choices.push_back(described.name);
  gpu.choices_help = "\n " + described_gpu_names();
  gpu.choice_of = described_gpu_name;
  bool compare = false, largest = false;
  if (auto help = parse_run(
          command, std::move(rows), options.train, &options.format, arguments,
          {{"--compare", &compare, "all strategies side by side"},
           {"--largest", &largest, "the deepest models that --devices of --memory each train"}},
          [&] { return largest || options.memory || !(options.roofline + options.gpu).empty(); }))
    return *help;
  const bool roofline = !options.roofline.empty(), other = options.memory || !options.gpu.empty();
  if (int{compare} + int{largest} + int{roofline} > 1)
    throw InputError("plan: give one of --compare, --largest and --roofline");
  if (roofline && options.gpu == described_gpu_name(options.roofline)) options.gpu.clear();
  if (roofline && (options.memory || !options.gpu.empty()))
    throw InputError("plan: --roofline names its GPU: leave out --gpu and --memory");
  if (options.train.devices.backend == Backend::kHost && other && !largest)
    throw InputError("plan: --backend host has no GPU: leave out --gpu and --memory");
  if (p.link_gbps.has_value() != p.gemm_tflops.has_value())
    throw InputError("plan: --link-gbps and --gemm-tflops predict together: give both");
  if (p.boxes > 1 && (roofline || largest))
    throw InputError("plan: --boxes is of the predicted time of updates: give --link-gbps with it");
  if (p.boxes > 1 && !p.inter_gbps)
    throw InputError("plan: --boxes: what one sends to the others is --inter-gbps: give that, too");
  if (p.inter_gbps && !p.link_gbps)
    throw InputError(
        "plan: --inter-gbps predicts with --link-gbps and --gemm-tflops: give those, too");
  if (!options.measured.empty() && !roofline)
    throw InputError("plan: --measured is of --roofline: give that too");
  if (std::optional<std::int64_t>& devices = options.train.devices.count; p.boxes > 1) {
    if (!devices) throw InputError("plan: --boxes: of how many devices each? give --devices");
    *devices *= p.boxes;
  }
  if (compare) options.kind = PlanKind::kCompare;
  if (largest) options.kind = PlanKind::kLargest;
  if (roofline) options.kind = PlanKind::kRoofline;
  return options;
}

Command parse_bench(const CommandRow& command, Arguments arguments, BenchKind kind) {
  BenchOptions options{.kind = kind};
  if (kind == BenchKind::kOptimizer) options.train.sharding.strategy = kAllStrategies;
  std::vector<OptionRow> rows = option_table(options.train);
  if (kind == BenchKind::kOptimizer)
    std::ranges::find(rows, "strategy", &OptionRow::name)->choices.push_back(kAllStrategies);
  rows.push_back(OptionGroup{"Measurement"}("steps", OptionClass::kHost, "N",
                                            "steps to measure, after one to warm up",
                                            &options.steps, {1, 1 << 20}));
  if (auto help = parse_run(command, std::move(rows), options.train, &options.format, arguments))
    return *help;
  return options;
}

}  // namespace muo::app
