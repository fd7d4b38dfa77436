#pragma once

#include <span>

#include "app/cli.h"
#include "app/options/option_parser.h"

namespace muo::app {

// Without the program's name and the command's.
using Arguments = std::span<const char* const>;

// The commands that take the options of a run: those of the command line, of --config, or of the
// run that --resume goes on with.
Command parse_train(const CommandRow& command, Arguments arguments);
Command parse_sweep(const CommandRow& command, Arguments arguments);
Command parse_plan(const CommandRow& command, Arguments arguments);
Command parse_bench(const CommandRow& command, Arguments arguments, BenchKind kind);

}  // namespace muo::app
