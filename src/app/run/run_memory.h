#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/run/run_config.h"
#include "base/system_limits.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {

// What one rank of this run will need: the traced arena of a rank's training step and evaluation.
// Ranks need the same to within their share of the sharded state; this is rank 0's.
MemoryPlan plan_run_memory(const RunConfig& config);

// A run with all that is planned of it.
struct PlannedRun {
  RunConfig config;
  std::vector<ParamSpec> params;  // gpt_parameters(config.model)
  optim::ShardingPlan plan;
  MemoryPlan memory;               // of one device
  std::int64_t staging_bytes = 0;  // of one device, for saves in the background; 0: none
};
// Of a run that fits: `memory` is what fit_memory() returned.
PlannedRun plan_run(RunConfig config, MemoryPlan memory);

// Bytes of host memory that a save in the background takes on the rank that needs most.
std::int64_t plan_staging_memory(const std::vector<ParamSpec>& params,
                                 const optim::ShardingPlan& plan);

// What a training process on the host holds beside planned tensors and the staging memory of saves:
// the program and its libraries (10 MiB of pages of their files); per device what products pack,
// stacks of threads, batches on their way and the graphs' nodes; and, where saves have no staging
// memory, the chunks in which they are written. Measured (docs/performance.md).
std::int64_t process_base(int world, bool stages_saves);

// How far from process_base() processes were found, in bytes (docs/performance.md).
inline constexpr std::int64_t kBaseSpread = std::int64_t{10} << 20;

// The memory that a process with `ranks` ranks may take on the host, which it shares with the other
// processes of `group`: available_memory() for the threads of such a run.
AvailableMemory process_memory(const GroupOptions& group, int ranks);
// The part of so many bytes that is left for planned tensors and the staging memory of saves: all
// but process_base() and kBaseSpread.
std::int64_t tensor_bytes(std::int64_t bytes, int ranks, bool stages_saves);

// Gives the system back what preparing a run left free in the heap. With `give_back`, from now on
// large blocks too, as they are freed: what products pack on every thread, 10 to 20 MiB of two
// devices, which costs their steps 2 or 3 %. Nothing where the C library is not glibc. For one
// thread at a time: where another allocator stands in for glibc's (a sanitizer's, jemalloc's), this
// call is the first that glibc's own sees, and that one does not guard its initialization.
void trim_heap(bool give_back);

// --save-mode: whether training goes on while a checkpoint is written; not where the only one is
// the last. That takes `staging` bytes of host memory on each rank besides the `planned` ones of
// its device, which on the host are host memory too. auto: if they fit into the `available` bytes
// of this process; else a line of `notes` says so. Throws InputError if `background` was asked for
// and they do not fit.
bool choose_background_saves(const RunConfig& config, std::int64_t planned, std::int64_t staging,
                             std::int64_t available, std::vector<std::string>& notes);

// Plans staging memory for the run, if choose_background_saves() says so.
void plan_background_saves(PlannedRun& run, std::int64_t available,
                           std::vector<std::string>& notes);

// Throws InputError, with the numbers and the options to change, if plan.rank_bytes() do not fit
// into the `available` bytes of a rank (available_memory_per_rank()).
void require_memory(const RunConfig& config, const MemoryPlan& plan, std::int64_t available);

inline constexpr std::int64_t kLoaderSlots = 3;  // of batches: a step's in use, those of two ahead
// Throws InputError if the batches of all ranks do not fit into the `available` bytes of the host.
void require_batches(const RunConfig& config, std::int64_t available);

}  // namespace muo::app
