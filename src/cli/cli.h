#pragma once

#include <span>
#include <string>
#include <variant>

#include "trainer/options/options.h"

namespace muo::cli {

// Text to print instead of running anything: --help, --version.
struct Answer {
  std::string text;
};
using Command =
    std::variant<trainer::TrainOptions, trainer::SweepOptions, trainer::EvalOptions,
                 trainer::SampleOptions, trainer::PlanOptions, trainer::BenchOptions,
                 trainer::DoctorOptions, trainer::ImportOptions, trainer::ExportOptions,
                 trainer::InspectOptions, trainer::VerifyOptions, trainer::ReportOptions,
                 trainer::CompareOptions, trainer::TimelineOptions, trainer::TokenizeOptions,
                 trainer::TrainTokenizerOptions, trainer::EncodeOptions, trainer::DecodeOptions,
                 trainer::ConvertTokenizerOptions, Answer>;

// `arguments` excludes the program's name. Throws InputError for anything invalid.
Command parse_command_line(std::span<const char* const> arguments);

// The commands, after parsing. Each returns its exit code and throws InputError or Error.
int run_command(const trainer::TrainOptions& options);
// Trains many short runs that differ in some options and reports the best one: docs/sweeps.md.
int run_command(const trainer::SweepOptions& options);
int run_command(const trainer::EvalOptions& options);
int run_command(const trainer::SampleOptions& options);
// Prints parameters, ownership, memory and bytes sent of a run without running it, or a comparison
// of all strategies. Without `data`, the vocabulary is --vocab-size or that of the byte tokenizer.
int run_command(const trainer::PlanOptions& options);
// Measures training steps of the run that the options describe, on random tokens.
int run_command(const trainer::BenchOptions& options);
// Describes this machine, or with `gpu_only` only its GPUs; then returns 3 if they cannot be used.
int run_command(const trainer::DoctorOptions& options);
int run_command(const trainer::ImportOptions& options);
int run_command(const trainer::ExportOptions& options);
int run_command(const trainer::InspectOptions& options);
int run_command(const trainer::VerifyOptions& options);
// Writes an HTML report of runs (html_report.h).
int run_command(const trainer::ReportOptions& options);
// Tells whether held-out losses of runs differ by more than chance (kit/sweep/comparison.h).
int run_command(const trainer::CompareOptions& options);
// Prints where the time of recorded steps went (kit/bench/timeline_report.h).
int run_command(const trainer::TimelineOptions& options);
// Writes text as token shards (data/shards.h), with a manifest (data/shard_manifest.h).
int run_command(const trainer::TokenizeOptions& options);
// Tokenizers (data/tokenizer.h). These train one; print the ids of each text on a line; print the
// text of ids; convert another format to tokenizer.json.
int run_command(const trainer::TrainTokenizerOptions& options);
int run_command(const trainer::EncodeOptions& options);
int run_command(const trainer::DecodeOptions& options);
int run_command(const trainer::ConvertTokenizerOptions& options);

// The whole program: parses the command line, runs the command, and turns exceptions into one line
// on stderr and an exit code (2: InputError, 3: anything else). `version` is what --version prints.
int run_program(std::span<const char* const> arguments, const char* version);

}  // namespace muo::cli
