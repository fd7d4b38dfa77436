#include "cli/run_parsers.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/installed_file.h"
#include "kit/sweep/find_sweep.h"
#include "kit/sweep/search_space.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/options/launch.h"
#include "trainer/options/option_parser.h"
#include "trainer/options/option_table.h"
#include "trainer/run/backend.h"
#include "trainer/run/described_gpu.h"

namespace muo::cli {
namespace {

// The file from which --resume reads the options of a run or a sweep. Rejects an empty file, which
// would mean the defaults.
std::filesystem::path written_options(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::file_size(file, error) == 0 && !error)
    throw trainer::input_error(
        "--resume: {} is empty, so it is damaged: give the run's options by --config",
        file.string());
  return file;
}

struct Flag {
  const char* name;
  bool* field;
  const char* help;
};

// Uses the model and the tokenizer of --init-from, except for options that are given. Returns false
// if there is no --init-from.
bool take_initial_model(const trainer::Parser& parser, trainer::TrainOptions& train) {
  if (train.run.init_from.empty()) return false;
  // open_init_from() verifies the checkpoint when it loads the weights.
  const trainer::Checkpoint checkpoint(train.run.init_from,
                                       {.weights_only = true, .verify = false});
  if (!parser.is_given("tokenizer"))
    if (const auto tokenizer = trainer::find_run_tokenizer(checkpoint); !tokenizer.empty())
      train.data.tokenizer = tokenizer.string();
  if (parser.is_given("depth") || parser.is_given("model")) return true;
  const trainer::ModelOptions given = train.model;
  const model::GptConfig model = trainer::checkpoint_model(checkpoint);
  train.model.set_all(model);
  train.model.preset = model.value_embeddings || model.smear || model.backout ||
                               model.resid_lambdas || model.x0_lambdas
                           ? trainer::ModelPreset::kNanochat
                           : trainer::ModelPreset::kPlain;
  for (const trainer::GptField& field : trainer::gpt_fields())
    if (parser.is_given(field.option.name))
      std::visit([&](auto member) { train.model.set(member, given.values.*member); }, field.member);
  return true;
}

// On a CPU even the smallest model by nanochat's laws takes hours, so a run that gives no size of
// the model uses the sizes of quick.toml. A given horizon overrides the file's.
void choose_sizes(trainer::Parser& parser, trainer::TrainOptions& train,
                  const trainer::TakeValues& take = {}) {
  const bool has_model = take_initial_model(parser, train);
  trainer::DeviceOptions devices = train.devices;
  std::vector<std::string> notes;
  const std::filesystem::path quick = installed_file("configs/quick.toml");
  if (quick.empty() || trainer::choose_devices(devices, notes).plugin != nullptr) return;
  train.run.sizes = trainer::CpuSizes::kLaws;
  for (const char* size : {"depth", "aspect-ratio", "head-dim", "n-layer", "n-embd", "n-head"})
    if (parser.is_given(size)) return;
  parser.apply_config(quick, /*named=*/false,
                      [&](const trainer::OptionRow& row, auto values, auto where) {
                        return (has_model && row.group == trainer::kModelGroup) ||
                               (take && take(row, values, where));
                      });
  train.run.sizes = trainer::CpuSizes::kQuick;
}

// Records the batch of the resumed run, which resolve() keeps where the options allow it. Throws
// InputError if the row length differs.
void take_before(const trainer::Parser& parser, const trainer::TrainOptions& was,
                 const std::filesystem::path& file, trainer::TrainOptions& train) {
  const auto length = &model::GptConfig::seq_len;
  if (train.model.has(length) && was.model.has(length) &&
      train.model.values.seq_len != was.model.values.seq_len)
    throw trainer::input_error(
        "--max-seq-len {}: the resumed run has rows of {} tokens ({}), which determine its "
        "position in the data: omit the option, or start a new run",
        train.model.values.seq_len, was.model.values.seq_len, file.string());
  const trainer::BatchOptions& batch = was.batch;
  if (parser.is_given("target-batch-size") && train.batch.target_tokens != batch.target_tokens)
    return;
  train.batch.before = {.world = was.devices.count.value_or(0) * was.devices.ranks_per_device,
                        .device_rows = batch.device_rows,
                        .total_tokens = {}};
  if (batch.target_tokens && batch.total_tokens)
    train.batch.before.total_tokens = batch.total_tokens->stages.front().tokens;
}

// Parses the options of a run, for commands that train, plan or measure it, and --json if `format`
// is not null. Returns the help text if it was requested. The sizes of quick.toml may apply unless
// has_own_sizes().
std::optional<Answer> parse_run(const trainer::CommandRow& command,
                                std::vector<trainer::OptionRow> rows, trainer::TrainOptions& train,
                                trainer::ReportFormat* format, Arguments arguments,
                                std::initializer_list<Flag> flags = {},
                                const std::function<bool()>& has_own_sizes = {}) {
  // A launched process gives its own devices with --devices; those in the file may be the world's.
  const bool launched = trainer::find_launch().has_value();
  if (launched) std::ranges::find(rows, "devices", &trainer::OptionRow::name)->replaces.clear();
  trainer::Parser parser(command, std::move(rows));
  std::string config;
  bool json = false;
  parser.add_text("--config", config, "FILE.toml",
                  "read options from a TOML file; the command line overrides it");
  if (format != nullptr) parser.add_flag("--json", json, "print JSON");
  for (const Flag& flag : flags)
    parser.add_flag(flag.name, *flag.field, flag.help);
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  if (json) *format = trainer::ReportFormat::kJson;
  std::filesystem::path file;
  if (!config.empty()) {
    file = trainer::find_config(config);
  } else if (!train.run.resume.empty()) {
    const trainer::RunDirectory resumed{trainer::find_run_directory(train).resumed, {}};
    if (!resumed.root.empty() && std::filesystem::exists(resumed.config()))
      file = written_options(resumed.config());
  }
  trainer::TrainOptions was;  // options of the resumed run
  if (config.empty() && !file.empty()) {
    trainer::load_config(file, trainer::read_config(file), trainer::option_table(was));
    take_before(parser, was, file, train);
  }
  // The file has the world's devices and communicator; a launched process keeps its own.
  const trainer::TakeValues own_devices = [=](const trainer::OptionRow& row, auto, auto) {
    return launched && (row.name == "devices" || row.name == "comm");
  };
  // Values that the resumed run had resolved may conflict with the options given now; then they are
  // resolved again.
  const trainer::TakeValues follows = [&](const trainer::OptionRow& row,
                                          std::span<const std::string> values,
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

Command parse_train(const trainer::CommandRow& command, Arguments arguments) {
  trainer::TrainOptions train;
  if (auto help = parse_run(command, trainer::option_table(train), train, nullptr, arguments,
                            {{"--process-per-device", &train.devices.process_per_device,
                              "run one process, instead of one thread, per device here"},
                             {"--quiet", &train.run.quiet, "show only warnings and results"},
                             {"--verbose", &train.run.verbose,
                              "also show every automatic decision, as in output.log"}}))
    return *help;
  if (train.run.quiet && train.run.verbose)
    throw InputError("train: --quiet and --verbose: give only one of them");
  if (train.data.paths.empty())
    throw InputError("train: --data is required: text files, folders of text, or .bin shards");
  return train;
}

Command parse_sweep(const trainer::CommandRow& command, Arguments arguments) {
  trainer::SweepOptions options;
  trainer::Parser parser(command, trainer::option_table(options));
  std::string config;
  parser.add_text("--config", config, "FILE.toml",
                  "read options from a TOML file; the command line overrides it");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  const trainer::TakeValues take_axis = [&](const trainer::OptionRow& row,
                                            std::span<const std::string> values,
                                            std::string_view where) {
    std::optional<trainer::Axis> axis = kit::parse_axis(row, values, where);
    if (axis) options.axes.push_back(std::move(*axis));
    return axis.has_value();
  };
  parser.apply(take_axis);
  const trainer::RunOptions& run = options.train.run;
  std::filesystem::path file;
  if (!config.empty()) {
    file = trainer::find_config(config);
  } else if (!run.resume.empty()) {
    const std::filesystem::path sweep = kit::find_sweep_directory(run);
    if (kit::holds_sweep(sweep)) file = written_options(sweep / "sweep.toml");
  }
  if (!file.empty())
    parser.apply_config(file, !config.empty(), take_axis);
  else
    choose_sizes(parser, options.train, take_axis);
  if (options.train.data.paths.empty())
    throw InputError("sweep: --data is required: text files, folders of text, or .bin shards");
  return options;
}

Command parse_plan(const trainer::CommandRow& command, Arguments arguments) {
  trainer::PlanOptions options;
  const trainer::PredictionOptions& p = options.prediction;
  std::vector<trainer::OptionRow> rows = trainer::option_table(options);
  trainer::OptionRow& gpu = *std::ranges::find(rows, "gpu", &trainer::OptionRow::name);
  for (const trainer::DescribedGpu& described : trainer::described_gpus())
    gpu.choices.push_back(described.name);
  gpu.choices_help = "\n " + trainer::described_gpu_names();
  gpu.choice_of = trainer::described_gpu_name;
  bool compare = false, largest = false;
  if (auto help = parse_run(
          command, std::move(rows), options.train, &options.format, arguments,
          {{"--compare", &compare, "compare all strategies"},
           {"--largest", &largest, "show the deepest models that fit --devices of --memory each"}},
          [&] { return largest || options.memory || !(options.roofline + options.gpu).empty(); }))
    return *help;
  const bool roofline = !options.roofline.empty(), other = options.memory || !options.gpu.empty();
  if (int{compare} + int{largest} + int{roofline} > 1)
    throw InputError("plan: give only one of --compare, --largest and --roofline");
  if (roofline && options.gpu == trainer::described_gpu_name(options.roofline)) options.gpu.clear();
  if (roofline && (options.memory || !options.gpu.empty()))
    throw InputError("plan: --roofline already names a GPU: omit --gpu and --memory");
  if (options.train.devices.backend == trainer::Backend::kHost && other && !largest)
    throw InputError("plan: --backend host has no GPU: omit --gpu and --memory");
  if (p.link_gbps.has_value() != p.gemm_tflops.has_value())
    throw InputError("plan: --link-gbps and --gemm-tflops are used together: give both");
  if (p.boxes > 1 && (roofline || largest))
    throw InputError("plan: --boxes only affects the predicted time of updates: give --link-gbps");
  if (p.boxes > 1 && !p.inter_gbps)
    throw InputError("plan: --boxes needs the bandwidth between boxes: give --inter-gbps");
  if (p.inter_gbps && !p.link_gbps)
    throw InputError("plan: --inter-gbps needs --link-gbps and --gemm-tflops: give these too");
  if (!options.measured.empty() && !roofline) throw InputError("plan: --measured needs --roofline");
  if (std::optional<std::int64_t>& devices = options.train.devices.count; p.boxes > 1) {
    if (!devices)
      throw InputError("plan: --boxes needs the number of devices per box: give --devices");
    *devices *= p.boxes;
  }
  if (compare) options.kind = trainer::PlanKind::kCompare;
  if (largest) options.kind = trainer::PlanKind::kLargest;
  if (roofline) options.kind = trainer::PlanKind::kRoofline;
  return options;
}

Command parse_bench(const trainer::CommandRow& command, Arguments arguments,
                    trainer::BenchKind kind) {
  trainer::BenchOptions options{.kind = kind};
  if (kind == trainer::BenchKind::kOptimizer)
    options.train.sharding.strategy = trainer::kAllStrategies;
  std::vector<trainer::OptionRow> rows = trainer::option_table(options.train);
  if (kind == trainer::BenchKind::kOptimizer)
    std::ranges::find(rows, "strategy", &trainer::OptionRow::name)
        ->choices.push_back(trainer::kAllStrategies);
  rows.push_back(trainer::OptionGroup{"Measurement"}("steps", trainer::OptionClass::kHost, "N",
                                                     "steps to measure, after one to warm up",
                                                     &options.steps, {1, 1 << 20}));
  if (auto help = parse_run(command, std::move(rows), options.train, &options.format, arguments))
    return *help;
  return options;
}

}  // namespace muo::cli
