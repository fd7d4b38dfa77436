#include "cli/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/standard_streams.h"
#include "base/system_error_text.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "cli/run_parsers.h"
#include "trainer/options/foreign_options.h"
#include "trainer/options/option_parser.h"
#include "trainer/options/option_table.h"
#include "trainer/run/world.h"
#include "trainer/train/stop_signal.h"

namespace muo::cli {
namespace {

template <class Options>
Command parse_simple(const trainer::CommandRow& command, Arguments arguments) {
  Options options;
  trainer::Parser parser(command, trainer::option_table(options));
  if constexpr (requires { options.json; }) parser.add_flag("--json", options.json, "print JSON");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  return options;
}

Command parse_eval(const trainer::CommandRow& command, Arguments arguments) {
  trainer::EvalOptions options;
  trainer::Parser parser(command, trainer::option_table(options));
  parser.add_flag("--json", options.json, "print JSON");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  for (const char* of_examples : {"max-per-task", "row-tokens"})
    if (!options.examples.any() && parser.is_given(of_examples))
      throw InputError(concat("eval: --", of_examples, " needs --hellaswag or --core"));
  for (const char* of_data : {"data", "data-max-bytes", "eval-tokens"})
    if (options.examples.any() && parser.is_given(of_data))
      throw InputError(
          concat("eval: --", of_data, " has no effect with --hellaswag and --core: omit it"));
  return options;
}

Command parse_report(const trainer::CommandRow& command, Arguments arguments) {
  trainer::ReportOptions options;
  trainer::Parser parser(command, trainer::option_table(options));
  parser.add_flag("--text", options.text,
                  "print curves (for a sweep, a table) on the terminal instead");
  parser.add_flag("--follow", options.follow,
                  "serve the page on this machine, updated while runs train");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  if (options.follow && (options.text || parser.is_given("out")))
    throw InputError("report: --follow writes no file: leave out --text and --out");
  if (!options.follow && parser.is_given("port")) throw InputError("report: --port needs --follow");
  return options;
}

Command parse_sample(const trainer::CommandRow& command, Arguments arguments) {
  trainer::SampleOptions options;
  trainer::Parser parser(command, trainer::option_table(options));
  parser.add_flag("--interactive", options.interactive,
                  "read prompts from the terminal, one per line, until Ctrl-D");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  parser.apply();
  if (options.interactive && (parser.is_given("prompt") || parser.is_given("prompt-file")))
    throw InputError(
        "sample: --interactive reads its own prompts: leave out --prompt and --prompt-file");
  for (const std::string& stop : options.sampling.stops)
    if (stop.empty()) throw InputError("--stop: '' matches everywhere: give some text");
  return options;
}

Command parse_doctor(const trainer::CommandRow& command, Arguments arguments) {
  trainer::DoctorOptions options;
  trainer::Parser parser(command, {});
  parser.add_flag("--gpu", options.gpu_only,
                  "check GPUs only; exit code 3 if CUDA cannot use them");
  if (auto answer = parser.parse(arguments)) return Answer{*answer};
  return options;
}

// A command, or a family of commands whose names begin with the name of the family.
struct Entry : trainer::CommandRow {
  Command (*parse)(const trainer::CommandRow& command,
                   Arguments arguments) = nullptr;  // null for a family
  std::span<const Entry> members = {};
  std::string_view options = {};  // for a family: appended to its help

  [[nodiscard]] std::string_view own_name() const { return name.substr(name.find(' ') + 1); }
};

constexpr std::array kBench = {
    Entry{{"bench step", "tokens/s of training steps, and where their time goes",
           "bench step --config quick.toml\n"
           "bench step --depth 12 --devices 8 --json\n"
           "bench step --depth 12 --strategy ddp --steps 20"},
          [](const trainer::CommandRow& row, Arguments arguments) {
            return parse_bench(row, arguments, trainer::BenchKind::kStep);
          }},
    Entry{{"bench launch", "host time to launch a step, replayed and eager, and how long it waits",
           "bench launch --config quick.toml\n"
           "bench launch --depth 12 --graph-branches 1"},
          [](const trainer::CommandRow& row, Arguments arguments) {
            return parse_bench(row, arguments, trainer::BenchKind::kLaunch);
          }},
    Entry{{"bench optimizer",
           "optimizer update alone, by strategy: time, rate, exposed communication",
           "bench optimizer --depth 4 --devices 2\n"
           "bench optimizer --depth 4 --strategy balanced"},
          [](const trainer::CommandRow& row, Arguments arguments) {
            return parse_bench(row, arguments, trainer::BenchKind::kOptimizer);
          }},
};
constexpr std::array kCheckpoint = {
    Entry{
        {"checkpoint import", "make a checkpoint from nanochat's weights",
         "checkpoint import --model model_001000.safetensors --out runs/imported\n"
         "checkpoint import --model model_001000.safetensors --meta meta.json --out runs/imported"},
        parse_simple<trainer::ImportOptions>},
    Entry{{"checkpoint export", "write a checkpoint's weights for nanochat or Hugging Face",
           "checkpoint export runs/d12 --out for_nanochat\n"
           "checkpoint export runs/d12 --hf-code for_transformers\n"
           "checkpoint export runs/plain/checkpoints/step_500 --hf for_transformers"},
          parse_simple<trainer::ExportOptions>},
    Entry{{"checkpoint inspect", "show step, model, data, tensors and options",
           "checkpoint inspect runs/d12\n"
           "checkpoint inspect runs/d12/checkpoints/step_500"},
          parse_simple<trainer::InspectOptions>},
    Entry{{"checkpoint verify", "check that every byte is as written",
           "checkpoint verify runs/d12\n"
           "checkpoint verify runs/d12/checkpoints/step_500"},
          parse_simple<trainer::VerifyOptions>},
};
constexpr std::array kTokenizer = {
    Entry{
        {"tokenizer train", "train a byte-level BPE tokenizer on text",
         "tokenizer train --data my_text/ --out tokenizer.json\n"
         "tokenizer train --data pages.jsonl.zst --vocab-size 65536 --max-bytes 2GB --out t.json\n"
         "tokenizer train --data my_text/ --pattern gpt4 --special '<|endoftext|>' --out t.json"},
        parse_simple<trainer::TrainTokenizerOptions>},
    Entry{{"tokenizer encode", "turn text into token ids",
           "tokenizer encode my.txt --tokenizer tokenizer.json\n"
           "tokenizer encode --tokenizer gpt2/ <my.txt\n"
           "tokenizer encode chats.jsonl --special on --tokenizer tokenizer.json"},
          parse_simple<trainer::EncodeOptions>},
    Entry{{"tokenizer decode", "turn token ids into text",
           "tokenizer decode ids.txt --tokenizer tokenizer.json\n"
           "tokenizer decode --tokenizer tokenizer.json <ids.txt"},
          parse_simple<trainer::DecodeOptions>},
    Entry{{"tokenizer convert", "make a tokenizer.json from tiktoken ranks",
           "tokenizer convert my.tiktoken --pattern gpt4 --special '<s>=50000' --out t.json\n"
           "tokenizer convert cl100k_base.tiktoken --out tokenizer.json"},
          parse_simple<trainer::ConvertTokenizerOptions>},
};
constexpr std::array kCommands = {
    Entry{{"train", "train a GPT on text files, folders or token shards",
           "train --data my_text/\n"
           "train --config d12.toml --data shards/ --out runs/d12\n"
           "train --resume runs/d12"},
          parse_train},
    Entry{{"sweep", "train many short runs that differ in some options, and compare them",
           "sweep --data my_text/ --config quick.toml --matrix-lr 0.1,0.2,0.3\n"
           "sweep --data shards/ --depth 8 --matrix-lr log:0.01..0.1 --trials 16 --halving 4\n"
           "sweep --resume runs/my_sweep"},
          parse_sweep},
    Entry{{"eval", "evaluate a checkpoint: loss on held-out data, HellaSwag, CORE",
           "eval runs/d12\n"
           "eval runs/d12 --data other_text/\n"
           "eval runs/d12 --core core_bundle/ --max-per-task 100"},
          parse_eval},
    Entry{{"sample", "generate text with a checkpoint",
           "sample runs/d12 --prompt Once\n"
           "sample runs/d12/checkpoints/step_500 --max-tokens 200 --temperature 0.7\n"
           "sample runs/d12 --interactive"},
          parse_sample},
    Entry{{"plan", "predict parameters, ownership, memory and traffic of a run",
           "plan --depth 12 --devices 8\n"
           "plan --depth 20 --roofline h100\n"
           "plan --largest --devices 8 --memory 80GB"},
          parse_plan},
    Entry{{"bench", "measure a run's steps or only its updates: step, launch, optimizer"},
          nullptr,
          kBench,
          ": those of train"},
    Entry{{"report", "plot runs, with their speed, memory and options, in one HTML page",
           "report runs/d12\n"
           "report runs/*\n"
           "report runs/d12 --follow"},
          parse_report},
    Entry{{"compare", "tell whether runs differ by more than chance, in pairs of equal seeds",
           "compare runs/new_* --with runs/old_*\n"
           "compare runs/lr_*_seed_*\n"
           "compare sweeps/my_sweep"},
          parse_simple<trainer::CompareOptions>},
    Entry{{"timeline", "show where the time of steps went, from a file of --timeline",
           "timeline step.json\n"
           "timeline step.json --json"},
          parse_simple<trainer::TimelineOptions>},
    Entry{{"checkpoint", "import, export, inspect or verify checkpoints"}, nullptr, kCheckpoint},
    Entry{{"tokenize", "tokenize text into shards for training",
           "tokenize my_text/ --tokenizer tokenizer.json --out shards\n"
           "tokenize pages.jsonl.zst --field content --tokenizer gpt2/ --out shards\n"
           "tokenize - --tokenizer tokenizer.json --out shards"},
          parse_simple<trainer::TokenizeOptions>},
    Entry{{"tokenizer", "make and use tokenizers: train, encode, decode, convert"},
          nullptr,
          kTokenizer},
    Entry{{"doctor", "show what this machine has and what is missing",
           "doctor\n"
           "doctor --gpu"},
          parse_doctor},
};

constexpr std::string_view kComplete = "complete";

std::vector<std::string_view> names_of(std::span<const Entry> commands) {
  std::vector<std::string_view> out;
  for (const Entry& command : commands)
    out.push_back(command.own_name());
  return out;
}

// Formats one line, "  NAME  help", for each command.
std::string list_of(std::span<const Entry> commands) {
  std::string out;
  for (const Entry& command : commands)
    out += fmt::format("  {:<11}{}\n", command.own_name(), command.help);
  return out;
}

bool asks_for_help(std::string_view word) { return word == "--help" || word == "-h"; }

Command parse_member(const Entry& family, Arguments arguments) {
  const std::string_view name = arguments.empty() ? "--help" : arguments.front();
  const std::vector<std::string_view> names = names_of(family.members);
  if (asks_for_help(name))
    return Answer{
        fmt::format("Usage: muograph {0} {1} [OPTIONS]\n\n{2}\n"
                    "muograph {0} COMMAND --help shows its options{3}.\n",
                    family.name, fmt::join(names, "|"), list_of(family.members), family.options)};
  const auto found = std::ranges::find(family.members, name, &Entry::own_name);
  if (found == family.members.end())
    throw trainer::input_error("{}: unknown subcommand '{}': expected {}", family.name, name,
                               fmt::join(names, ", "));
  return found->parse(*found, arguments.subspan(1));
}

// Completions, for shells (src/cli/completion), of the last of the words after `complete`, which
// may be incomplete.
Command complete(Arguments words) {
  const auto offer = [&](std::span<const Entry> commands) {
    Answer out;
    for (const std::string_view name : names_of(commands))
      if (name.starts_with(words.back())) out.text += fmt::format("{}\n", name);
    return out;
  };
  if (words.empty() || words.front() == kComplete) return Answer{};
  if (words.size() == 1) return offer(kCommands);
  const auto command = std::ranges::find(kCommands, words.front(), &Entry::name);
  if (words.size() == 2 && command != kCommands.end() && command->parse == nullptr)
    return offer(command->members);
  std::vector<const char*> asked(words.begin(), words.end());
  asked.push_back(trainer::kCompleteLast.data());
  return parse_command_line(asked);
}

int run_command(const Answer& answer) {
  static_cast<void>(std::fputs(answer.text.c_str(), stdout));
  return 0;
}

int report(std::string text, int code) {
  std::ranges::replace(text, '\n', ' ');
  static_cast<void>(std::fflush(stdout));
  say(stderr, fmt::format("muograph: error: {}\n", text));
  return code;
}

}  // namespace

Command parse_command_line(Arguments arguments) {
  const std::string hint =
      fmt::format("give {} (muograph --help)", fmt::join(names_of(kCommands), ", "));
  if (arguments.empty()) throw trainer::input_error("no command: {}", hint);
  std::vector<const char*> words(arguments.begin(), arguments.end());
  if (words.size() > 1 && words.front() == std::string_view("help")) {  // help train
    words.erase(words.begin());
    words.push_back("--help");
  }
  const std::string_view name = words.front();
  const Arguments rest = Arguments(words).subspan(1);
  if (asks_for_help(name) || name == "help")
    return Answer{
        fmt::format("muograph trains GPTs, fast, on one machine or several.\n\nUsage: muograph "
                    "COMMAND [OPTIONS]\n\n{}\n"
                    "muograph COMMAND --help shows a command's options.\n",
                    list_of(kCommands))};
  if (name == kComplete) return complete(rest);
  const auto command = std::ranges::find(kCommands, name, &Entry::name);
  if (command == kCommands.end()) {
    const std::string_view near = trainer::nearest_name(name, names_of(kCommands));
    const std::string here = trainer::foreign_option(name);
    throw trainer::input_error("unknown command '{}': {}", name,
                               !here.empty()  ? here
                               : near.empty() ? hint
                                              : fmt::format("did you mean {}?", near));
  }
  return command->parse == nullptr ? parse_member(*command, rest) : command->parse(*command, rest);
}

int run_program(Arguments arguments, const char* version) {
  try {
    open_standard_streams();
    share_heap_if_limited();
    take_signals_on_own_thread(trainer::notify_stop);
    const bool asks_version =
        arguments.size() == 1 &&
        (std::string_view(arguments[0]) == "--version" || std::string_view(arguments[0]) == "-V");
    Command command = asks_version ? Command(Answer{fmt::format("muograph {}\n", version)})
                                   : parse_command_line(arguments);
    if (auto* train = std::get_if<trainer::TrainOptions>(&command)) {
      train->run.version = version;
      train->run.arguments.assign(arguments.begin(), arguments.end());
    } else if (auto* bench = std::get_if<trainer::BenchOptions>(&command)) {
      bench->train.run.version = version;
    } else if (!std::holds_alternative<Answer>(command)) {
      trainer::require_single_process(arguments[0]);
    }
    if (auto* sweep = std::get_if<trainer::SweepOptions>(&command))
      sweep->train.run.version = version;
    if (auto* imported = std::get_if<trainer::ImportOptions>(&command)) imported->version = version;
    const int status =
        std::visit([](const auto& options) { return run_command(options); }, command);
    // The output of the other commands is their result; runs have a log.
    const bool is_run = std::holds_alternative<trainer::TrainOptions>(command) ||
                        std::holds_alternative<trainer::SweepOptions>(command);
    errno = 0;
    if (!is_run && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
      throw Error(
          concat("cannot write standard output: ", system_error_text(errno == 0 ? EIO : errno)));
    return status;
  } catch (const InputError& error) {
    return report(error.what(), 2);
  } catch (const std::exception& error) {
    return report(error.what(), 3);
  } catch (...) {
    return report("unknown exception", 3);
  }
}

}  // namespace muo::cli
