#pragma once

#include <span>

#include "cli/cli.h"
#include "trainer/options/option_parser.h"

namespace muo::cli {

// Arguments after the program's and the command's name.
using Arguments = std::span<const char* const>;

// Parse the commands that take a run's options: from the command line, --config, or the run that
// --resume continues.
Command parse_train(const trainer::CommandRow& command, Arguments arguments);
Command parse_sweep(const trainer::CommandRow& command, Arguments arguments);
Command parse_plan(const trainer::CommandRow& command, Arguments arguments);
Command parse_bench(const trainer::CommandRow& command, Arguments arguments,
                    trainer::BenchKind kind);

}  // namespace muo::cli
