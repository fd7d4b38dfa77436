#pragma once

#include "trainer/options/options.h"

namespace muo::trainer {

// --process-per-device: starts this program once per device and waits for all processes. Host
// devices communicate by MPI, so mpirun starts their processes. Signals are forwarded to all
// processes. Returns the exit code of the first process that failed, 128 plus the number for a
// signal, or 0 if none failed. Throws InputError if mpirun is missing, or if a launcher has started
// this process.
int start_processes(const TrainOptions& options);

}  // namespace muo::trainer
