#pragma once

#include "trainer/options/options.h"

namespace muo::trainer {

// --process-per-device: starts this program once per device and waits for all processes. For host
// devices mpirun starts them, as they communicate by MPI. A signal is forwarded to all. Returns the
// exit code of the first process that failed, 128 plus the number for a signal; 0 if none has.
// Throws InputError if mpirun is missing, or if a launcher has started this process.
int start_processes(const TrainOptions& options);

}  // namespace muo::trainer
