#pragma once

#include <cstdint>
#include <string>

#include "app/run/run_config.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {

// How much memory a run may take.
struct MemoryBudget {
  std::int64_t to_plan = 0;  // bytes of a rank's planned tensors that automatic choices go by
  std::int64_t there = 0;    // that there are now
  std::int64_t process = 0;  // of the host, for what choose_background_saves() counts
  std::string limit = {};    // that sets `there` on the host, as AvailableMemory says it
  [[nodiscard]] std::int64_t of_a_rank() const { return to_plan < there ? to_plan : there; }
};

// By --memory-limit, else by what there is; each of `sharing` runs at a time gets the same part.
// On the host both are of the process: of all ranks' tensors and process_base(), within
// kBaseSpread; staging memory of saves counts, but decides only whether training waits for them.
// Of each GPU it stands for its total memory: kLibraryMemory and kContextMemory are in it. So the
// limit decides the same whatever is free (decision batch-for-total-memory).
MemoryBudget memory_budget(const RunConfig& config, int sharing = 1);

// Makes the run fit into `available` bytes of a rank (MemoryBudget::to_plan), by what costs least,
// and only as far as it is automatic:
// 1. fewer rows (--device-batch-size), a divisor of the step's rows per device, so that its tokens
//    stay the same; with --recompute auto not fewer than least_pass_tokens() have;
// 2. hidden activations of MLPs made again in backward: of as few layers as do (--recompute), with
//    fewer and fewer rows where all of them are not enough;
// 3. logits in smaller chunks, which round differently, down to kLeastHeadChunk;
// 4. whole blocks made again, of as few layers as do, and the MLPs of the others.
// What was done is noted, with the reason. Where nothing fits, `config` is what needs least.
// A run that fits as it is costs one trace. Returns plan_run_memory() of what `config` then is.
MemoryPlan fit_memory(RunConfig& config, std::int64_t available);

// A sixteenth of most_pass_tokens(): with fewer tokens in a micro-step, to read all weights and add
// to all gradients once more costs a GPU more than MLPs' hidden activations do.
std::int64_t least_pass_tokens(const GroupOptions& group);

inline constexpr std::int64_t kLeastHeadChunk = std::int64_t{16} << 20;

// "the MLPs of the first 3 of 12 layers"; "nothing".
std::string recompute_text(const RunConfig& config);
// FLOPs of a step that are those of recomputation, over those without it.
double recompute_share(const RunConfig& config);

}  // namespace muo::app
