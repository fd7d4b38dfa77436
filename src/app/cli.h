#pragma once

#include <span>
#include <string>
#include <variant>

#include "app/options/options.h"

namespace muo {

struct BenchOptions {
  BenchKind kind = BenchKind::kStep;
  TrainOptions train;
  std::int64_t steps = 10;
  ReportFormat format = ReportFormat::kTable;
};
struct DoctorOptions {
  bool gpu_only = false;
};
// Text to print instead of running anything: --help, --version.
struct Answer {
  std::string text;
};
using Command =
    std::variant<TrainOptions, EvalOptions, SampleOptions, PlanOptions, BenchOptions, DoctorOptions,
                 ImportOptions, ExportOptions, InspectOptions, VerifyOptions, Answer>;

// `arguments` without the program's name. Throws InputError for everything that is not understood.
Command parse_command_line(std::span<const char* const> arguments);

// The whole program: parses, runs, and turns exceptions into one line on stderr and an exit code
// (2: InputError, 3: anything else). `version` is what --version says.
int run_program(std::span<const char* const> arguments, const char* version);

}  // namespace muo
