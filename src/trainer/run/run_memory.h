#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/system_limits.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {

// Memory plan of one rank of this run: the traced arena of its training step and evaluation. Ranks
// differ only in their share of the sharded state; this is the plan of rank 0.
MemoryPlan plan_run_memory(const RunConfig& config);

// A run and its plans.
struct PlannedRun {
  RunConfig config;
  std::vector<ParamSpec> params;  // gpt_parameters(config.model)
  optim::ShardingPlan plan;
  MemoryPlan memory;               // of one device
  std::int64_t staging_bytes = 0;  // per device, for background saves; 0: none
};
// Plans a run that fits; `memory` is the result of fit_memory().
PlannedRun plan_run(RunConfig config, MemoryPlan memory);

// Bytes of host memory that a background save takes on the rank that needs the most.
std::int64_t plan_staging_memory(const std::vector<ParamSpec>& params,
                                 const optim::ShardingPlan& plan);

// Bytes of a training process on the host besides planned tensors and the staging memory of saves:
// the program and its libraries (10 MiB of them file pages); per device, buffers into which
// products pack their operands, stacks of threads, batches in flight and nodes of graphs; and, if
// saves have no staging memory, the chunks through which they are written. Measured
// (docs/performance.md).
std::int64_t process_base(int world, bool stages_saves);

// Largest measured deviation from process_base(), in bytes (docs/performance.md).
inline constexpr std::int64_t kBaseSpread = std::int64_t{10} << 20;

// Host memory available to a process with `ranks` ranks, which it shares with the other processes
// of `group`: available_memory() for the threads of such a run.
AvailableMemory process_memory(const GroupOptions& group, int ranks);
// The part of `bytes` that remains for planned tensors and the staging memory of saves, without
// process_base() and kBaseSpread.
std::int64_t tensor_bytes(std::int64_t bytes, int ranks, bool stages_saves);

// Returns free heap memory to the system after a run is prepared. With `give_back`, large blocks
// are from then on also returned when they are freed. These are the packing buffers of products, 10
// to 20 MiB for two devices; returning them slows down their steps by 2 or 3 %. Does nothing unless
// the C library is glibc. Not thread-safe: under another allocator (a sanitizer's, jemalloc's) this
// is the first call to glibc's own allocator, whose initialization the other does not guard.
void trim_heap(bool give_back);

// Decides by --save-mode whether training continues while a checkpoint is written; false if the
// only checkpoint is the last one. Background saves take `staging` bytes of host memory per rank,
// in addition to the `planned` bytes of its device, which on the host are host memory too. auto:
// true if they fit into the `available` bytes of this process; otherwise adds a line to `notes`.
// Throws InputError if `background` was given and they do not fit.
bool choose_background_saves(const RunConfig& config, std::int64_t planned, std::int64_t staging,
                             std::int64_t available, std::vector<std::string>& notes);

// Plans staging memory for the run if choose_background_saves() returns true.
void plan_background_saves(PlannedRun& run, std::int64_t available,
                           std::vector<std::string>& notes);

// Throws InputError, with the numbers and the options to change, if plan.rank_bytes() exceeds the
// `available` bytes per rank (available_memory_per_rank()).
void require_memory(const RunConfig& config, const MemoryPlan& plan, std::int64_t available);

inline constexpr std::int64_t kLoaderSlots = 3;  // slots of batches: one in use, two read ahead
// Throws InputError if the batches of all ranks do not fit into the `available` bytes of the host.
void require_batches(const RunConfig& config, std::int64_t available);

}  // namespace muo::trainer
