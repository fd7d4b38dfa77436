#pragma once

#include <span>
#include <string>
#include <variant>

#include "app/options/options.h"

namespace muo::app {

// Text to print instead of running anything: --help, --version.
struct Answer {
  std::string text;
};
using Command =
    std::variant<TrainOptions, SweepOptions, EvalOptions, SampleOptions, PlanOptions, BenchOptions,
                 DoctorOptions, ImportOptions, ExportOptions, InspectOptions, VerifyOptions,
                 ReportOptions, TokenizeOptions, TrainTokenizerOptions, EncodeOptions,
                 DecodeOptions, ConvertTokenizerOptions, Answer>;

// `arguments` without the program's name. Throws InputError for everything that is not understood.
Command parse_command_line(std::span<const char* const> arguments);

// What the commands of the program do, after parsing: each returns its exit code and throws
// InputError or Error.
int run_command(const TrainOptions& options);
// Trains many short runs that differ in some options, and tells which was best: docs/sweeps.md.
int run_command(const SweepOptions& options);
int run_command(const EvalOptions& options);
int run_command(const SampleOptions& options);
// Prints parameters, ownership, memory and wire bytes of a run without running it. Without `data`,
// the vocabulary is --vocab-size, or the byte tokenizer's.
// Or prints all strategies side by side.
int run_command(const PlanOptions& options);
// Measures training steps of a run that the options describe, on random tokens.
int run_command(const BenchOptions& options);
// What this machine has; `gpu_only`: of GPUs, and 3 if they cannot be used.
int run_command(const DoctorOptions& options);
int run_command(const ImportOptions& options);
int run_command(const ExportOptions& options);
int run_command(const InspectOptions& options);
int run_command(const VerifyOptions& options);
// Writes one page of HTML on runs (html_report.h).
int run_command(const ReportOptions& options);
// Writes text as token shards (data/shards.h), with a manifest (data/shard_manifest.h).
int run_command(const TokenizeOptions& options);
// Tokenizers (data/tokenizer.h): trains one; prints ids, a line for each text; prints the text of
// ids; writes a tokenizer.json of another form.
int run_command(const TrainTokenizerOptions& options);
int run_command(const EncodeOptions& options);
int run_command(const DecodeOptions& options);
int run_command(const ConvertTokenizerOptions& options);

// The whole program: parses, runs, and turns exceptions into one line on stderr and an exit code
// (2: InputError, 3: anything else). `version` is what --version says.
int run_program(std::span<const char* const> arguments, const char* version);

}  // namespace muo::app
