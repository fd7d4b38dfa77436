#pragma once

#include <span>

#include "cli/cli.h"
#include "trainer/options/option_parser.h"

namespace muo::cli {

// The arguments after the names of the program and the command.
using Arguments = std::span<const char* const>;

// These parse the commands that take a run's options, from the command line, from --config, or from
// the run that --resume continues.
Command parse_train(const trainer::CommandRow& command, Arguments arguments);
Command parse_sweep(const trainer::CommandRow& command, Arguments arguments);
Command parse_plan(const trainer::CommandRow& command, Arguments arguments);
Command parse_bench(const trainer::CommandRow& command, Arguments arguments,
                    trainer::BenchKind kind);

}  // namespace muo::cli
