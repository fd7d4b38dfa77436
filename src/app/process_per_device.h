#pragma once

#include "app/options/options.h"

namespace muo::app {

// --process-per-device: starts this program once for each device, with one of them, and waits for
// all. Host devices exchange by MPI, so that mpirun starts them. A signal goes to all. Returns the
// exit code of the first process that failed, 128 and more for a signal; 0 if none has. Throws
// InputError if there is no mpirun, or another launcher is at work.
int start_processes(const TrainOptions& options);

}  // namespace muo::app
