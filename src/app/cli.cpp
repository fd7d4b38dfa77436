#include "app/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include "app/checkpoint/run_directory.h"
#include "app/commands.h"
#include "app/options/option_parser.h"
#include "base/check.h"

namespace muo {
namespace {

constexpr std::array kCommands = {
    CommandRow{"train", "train a GPT on text files, folders or token shards"},
    CommandRow{"eval", "loss and bits per byte of a checkpoint on held-out data"},
    CommandRow{"sample", "let a checkpoint write text"},
    CommandRow{"plan", "parameters, ownership, memory and traffic of a run, without running it"},
    CommandRow{"bench", "measure a run's steps, or its updates alone: step, launch, optimizer"},
    CommandRow{
        "checkpoint",
        "look at checkpoints, exchange weights with nanochat: import, export, inspect, verify"},
    CommandRow{"doctor", "what this machine has and what is missing"},
};
constexpr std::array kBench = {
    // in the order of BenchKind
    CommandRow{"bench step", "tokens/s of training steps, and where their time goes"},
    CommandRow{"bench launch",
               "what enqueueing a step costs the host, replayed and eager, and what waits"},
    CommandRow{"bench optimizer", "the update alone, by strategy: time, rate, exposed traffic"},
};
constexpr std::array kCheckpoint = {
    CommandRow{"checkpoint import", "a checkpoint from nanochat's weights"},
    CommandRow{"checkpoint export", "a checkpoint's weights for nanochat"},
    CommandRow{"checkpoint inspect", "step, model, data, tensors and options"},
    CommandRow{"checkpoint verify", "whether every byte is as it was written"},
};

std::string general_help() {
  std::string out =
      "muograph trains GPTs on one machine, fast.\n\nUsage: muograph COMMAND [OPTIONS]\n\n";
  for (const CommandRow& command : kCommands)
    out += fmt::format("  {:<10} {}\n", command.name, command.help);
  return out + "\nmuograph COMMAND --help tells a command's options.\n";
}

template <class Options>
Command parse_simple(const CommandRow& command, std::span<const char* const> arguments) {
  Options options;
  Parser parser(command, option_table(options));
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  return options;
}

struct Flag {
  const char* name;
  bool* field;
  const char* help;
};

// The options of a run, for what trains it, describes it or measures it; --json where `format` is
// given. The help, if that was asked for.
std::optional<Answer> parse_run(const CommandRow& command, std::vector<OptionRow> rows,
                                TrainOptions& train, ReportFormat* format,
                                std::span<const char* const> arguments,
                                std::span<const Flag> flags = {}) {
  Parser parser(command, std::move(rows));
  std::string config;
  bool json = false;
  parser.add_text("--config", config, "FILE.toml",
                  "options from a file, `name = value` lines; the command line wins");
  if (format != nullptr) parser.add_flag("--json", json, "for programs");
  for (const Flag& flag : flags)
    parser.add_flag(flag.name, *flag.field, flag.help);
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  if (!config.empty()) {
    parser.apply_config(find_config(config));
  } else if (!train.run.resume.empty()) {
    const RunDirectory run = find_run_directory(train);
    if (!run.resume.empty() && std::filesystem::exists(run.config())) {
      // A run from before there was a choice.
      if (!parser.is_given("model")) train.model.preset = "plain";
      parser.apply_config(run.config());
    }
  }
  if (json) *format = ReportFormat::kJson;
  return std::nullopt;
}

Command parse_train(const CommandRow& command, std::span<const char* const> arguments) {
  TrainOptions train;
  if (auto help = parse_run(command, option_table(train), train, nullptr, arguments)) return *help;
  if (train.data.paths.empty())
    throw InputError("train: --data is required: text files, folders of text, or .bin shards");
  return train;
}

Command parse_plan(const CommandRow& command, std::span<const char* const> arguments) {
  PlanOptions options;
  PredictionOptions& p = options.prediction;
  std::vector<OptionRow> rows = option_table(options.train);
  for (OptionRow& row : option_table(p))
    rows.push_back(std::move(row));
  bool compare = false, articles = false;
  const std::array flags = {
      Flag{"--compare", &compare, "all strategies side by side"},
      Flag{"--articles", &articles, "tables of articles on these strategies, and what holds"}};
  if (auto help =
          parse_run(command, std::move(rows), options.train, &options.format, arguments, flags))
    return *help;
  if (compare && articles) throw InputError("plan: give --compare or --articles, not both");
  if (p.link_gbps.has_value() != p.gemm_tflops.has_value())
    throw InputError("plan: --link-gbps and --gemm-tflops predict together: give both");
  if (compare) options.kind = PlanKind::kCompare;
  if (articles) options.kind = PlanKind::kArticles;
  return options;
}

constexpr std::string_view kComplete = "complete";

// Of a command that is several, their rows have it in front of their names.
std::string_view member_name(const CommandRow& row) {
  return row.name.substr(row.name.find(' ') + 1);
}

// The member that is called `what`; throws InputError. Null: help was asked for.
const CommandRow* find_member(std::string_view family, std::span<const CommandRow> rows,
                              std::string_view what) {
  if (what == "--help" || what == "-h") return nullptr;
  const auto found = std::ranges::find(rows, what, member_name);
  if (found != rows.end()) return &*found;
  std::string known;
  for (const CommandRow& row : rows)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", member_name(row));
  throw InputError(fmt::format("{}: '{}' is none of {}", family, what, known));
}

Answer family_help(std::string_view family, std::span<const CommandRow> rows,
                   std::string_view options) {
  std::string names;
  std::string lines;
  for (const CommandRow& row : rows) {
    names += fmt::format("{}{}", names.empty() ? "" : "|", member_name(row));
    lines += fmt::format("  {:<9}  {}\n", member_name(row), row.help);
  }
  return {
      fmt::format("Usage: muograph {0} {1} [OPTIONS]\n\n{2}\n"
                  "muograph {0} COMMAND --help tells its options{3}.\n",
                  family, names, lines, options)};
}

Command parse_bench(std::span<const char* const> arguments) {
  const CommandRow* const row =
      find_member("bench", kBench, arguments.empty() ? "" : arguments.front());
  if (row == nullptr) return family_help("bench", kBench, ": those of train");
  BenchOptions options;
  options.kind = static_cast<BenchKind>(row - kBench.data());
  if (options.kind == BenchKind::kOptimizer) options.train.sharding.strategy = kAllStrategies;
  std::vector<OptionRow> rows = option_table(options.train);
  if (options.kind == BenchKind::kOptimizer)
    std::ranges::find(rows, "strategy", &OptionRow::name)->choices.push_back(kAllStrategies);
  rows.push_back({"steps", "Measurement", OptionClass::kHost, "N",
                  "steps to measure, after one to warm up", &options.steps, 1, 1 << 20});
  if (auto help =
          parse_run(*row, std::move(rows), options.train, &options.format, arguments.subspan(1)))
    return *help;
  return options;
}

Command parse_doctor(const CommandRow& command, std::span<const char* const> arguments) {
  DoctorOptions options;
  Parser parser(command, {});
  parser.add_flag("--gpu", options.gpu_only, "GPUs only; exit code 3 if CUDA cannot use them");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  return options;
}

Command parse_checkpoint(std::span<const char* const> arguments) {
  const CommandRow* const row =
      find_member("checkpoint", kCheckpoint, arguments.empty() ? "" : arguments.front());
  if (row == nullptr) return family_help("checkpoint", kCheckpoint, "");
  switch (row - kCheckpoint.data()) {
    case 0:
      return parse_simple<ImportOptions>(*row, arguments.subspan(1));
    case 1:
      return parse_simple<ExportOptions>(*row, arguments.subspan(1));
    case 2:
      return parse_simple<InspectOptions>(*row, arguments.subspan(1));
    default:
      return parse_simple<VerifyOptions>(*row, arguments.subspan(1));
  }
}

// What may follow the words behind `complete`, the last of which is being written; for shells
// (src/app/completion).
Command complete(std::span<const char* const> words) {
  const auto offer = [&](std::span<const CommandRow> rows) {
    Answer out;
    for (const CommandRow& row : rows)
      if (member_name(row).starts_with(words.back()))
        out.text += fmt::format("{}\n", member_name(row));
    return out;
  };
  const std::string_view first = words.empty() ? "" : words.front();
  if (words.empty() || first == kComplete) return Answer{};
  if (words.size() == 1) return offer(kCommands);
  if (words.size() == 2 && first == "bench") return offer(kBench);
  if (words.size() == 2 && first == "checkpoint") return offer(kCheckpoint);
  std::vector<const char*> asked(words.begin(), words.end());
  asked.push_back(kCompleteLast.data());
  return parse_command_line(asked);
}

struct Run {
  int operator()(const TrainOptions& options) const { return run_train(options); }
  int operator()(const EvalOptions& options) const { return run_eval(options); }
  int operator()(const SampleOptions& options) const { return run_sample(options); }
  int operator()(const PlanOptions& options) const { return run_plan(options); }
  int operator()(const BenchOptions& options) const {
    return run_bench(options.kind, options.train, options.steps, options.format);
  }
  int operator()(const DoctorOptions& options) const { return run_doctor(options.gpu_only); }
  int operator()(const ImportOptions& options) const { return run_import(options); }
  int operator()(const ExportOptions& options) const { return run_export(options); }
  int operator()(const InspectOptions& options) const { return run_inspect(options); }
  int operator()(const VerifyOptions& options) const { return run_verify(options); }
  int operator()(const Answer& answer) const {
    static_cast<void>(std::fputs(answer.text.c_str(), stdout));
    return 0;
  }
};

int report(std::string text, int code) {
  std::ranges::replace(text, '\n', ' ');
  static_cast<void>(std::fflush(stdout));
  static_cast<void>(std::fprintf(stderr, "muograph: error: %s\n", text.c_str()));
  return code;
}

}  // namespace

Command parse_command_line(std::span<const char* const> arguments) {
  constexpr std::string_view kHint =
      "give train, eval, sample, plan, bench, checkpoint or doctor (muograph --help)";
  if (arguments.empty()) throw InputError(fmt::format("no command: {}", kHint));
  const std::string_view name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") return Answer{general_help()};
  if (name == kComplete) return complete(arguments.subspan(1));
  const auto command = std::ranges::find(kCommands, name, &CommandRow::name);
  if (command == kCommands.end()) {
    std::array<std::string_view, kCommands.size()> names;
    std::ranges::transform(kCommands, names.begin(), &CommandRow::name);
    const std::string_view near = nearest_name(name, names);
    throw InputError(
        fmt::format("unknown command '{}': {}", name,
                    near.empty() ? std::string(kHint) : fmt::format("did you mean {}?", near)));
  }
  const auto rest = arguments.subspan(1);
  if (name == "eval") return parse_simple<EvalOptions>(*command, rest);
  if (name == "sample") return parse_simple<SampleOptions>(*command, rest);
  if (name == "doctor") return parse_doctor(*command, rest);
  if (name == "checkpoint") return parse_checkpoint(rest);
  if (name == "plan") return parse_plan(*command, rest);
  if (name == "bench") return parse_bench(rest);
  return parse_train(*command, rest);
}

int run_program(std::span<const char* const> arguments, const char* version) {
  try {
    if (arguments.size() == 1 && std::string_view(arguments[0]) == "--version")
      return Run{}(Answer{fmt::format("muograph {}\n", version)});
    return std::visit(Run{}, parse_command_line(arguments));
  } catch (const InputError& error) {
    return report(error.what(), 2);
  } catch (const std::exception& error) {
    return report(error.what(), 3);
  } catch (...) {
    return report("unknown exception", 3);
  }
}

}  // namespace muo
