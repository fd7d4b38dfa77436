#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/memory/memory_plan.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {

// The memory that a run may use.
struct MemoryBudget {
  std::int64_t to_plan = 0;    // bytes of planned tensors per rank for automatic choices
  std::int64_t available = 0;  // the same, as available now
  std::int64_t process = 0;    // bytes of host memory, for choose_background_saves()
  std::string limit = {};      // text of the host's limit (AvailableMemory)
  [[nodiscard]] std::int64_t per_rank() const { return std::min(to_plan, available); }
};

// The budget by --memory-limit, or by the available memory; each of `sharing` concurrent runs gets
// an equal part. On the host both apply to the process, that is, to tensors of all ranks and
// process_base(), within kBaseSpread; staging memory of saves is counted, but only decides whether
// training waits for saves. For GPUs the limit replaces each GPU's total memory, which includes
// kLibraryMemory and kContextMemory, so that the decision does not depend on what is free (decision
// batch-for-total-memory).
MemoryBudget memory_budget(const RunConfig& config, int sharing = 1);

// Makes the run fit into `available` bytes per rank (MemoryBudget::to_plan), changing only
// automatic options, the cheapest first:
// 1. fewer rows (--device-batch-size), a divisor of the step's rows per device, so that the tokens
//    of a step stay the same; with --recompute auto at least min_pass_tokens();
// 2. hidden activations of MLPs recomputed in backward (--recompute), in as few layers as suffice,
//    with ever fewer rows if all layers do not;
// 3. logits in smaller chunks, which round differently, down to kMinHeadChunk;
// 4. whole blocks recomputed, in as few layers as suffice, and the MLPs of the others.
// Changes are noted with their reason. If nothing fits, `config` becomes the configuration that
// needs the least memory. A run that fits unchanged costs one trace. Returns plan_run_memory() of
// the changed `config`.
MemoryPlan fit_memory(RunConfig& config, std::int64_t available);

// A sixteenth of max_pass_tokens(). With fewer tokens per micro-step, another pass over all weights
// and gradients costs a GPU more than recomputing the MLPs' hidden activations.
std::int64_t min_pass_tokens(const GroupOptions& group);

inline constexpr std::int64_t kMinHeadChunk = std::int64_t{16} << 20;

// "the MLPs of the first 3 of 12 layers"; "nothing".
std::string recompute_text(const RunConfig& config);
// FLOPs of recomputation in a step, relative to the FLOPs without it.
double recompute_share(const RunConfig& config);

}  // namespace muo::trainer
