#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/run/memory_fit.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {

struct GivenOption {
  std::string name, value;
};

// Options with which a run that does not fit will fit, and their effect.
struct Alternative {
  std::vector<GivenOption> options;  // to be added to the given ones
  RunConfig config;                  // with these options, after fit_memory()
  std::int64_t bytes = 0;            // planned tensors of all ranks
  bool fits = false;
  double time = 1;  // predicted time of a step, by FLOPs and devices, relative to the given options

  [[nodiscard]] std::string text() const;  // "--dtype bf16 (1.02 GiB, rounds to bf16)"
};

// Returns at most kMaxAlternatives alternatives, cheapest first, found by planning each: every
// option alone, then pairs of them, otherwise the smallest combination that fits. If even all of
// them together do not fit, returns the one that needs least, with fits == false; nothing if no
// option can be changed. `asked`: options as given, from which resolve() made `config`. `sharing`:
// runs that share the memory.
std::vector<Alternative> nearest_alternatives(const RunConfig& config, const TrainOptions& asked,
                                              const data::Corpus& corpus, int sharing = 1);
inline constexpr std::size_t kMaxAlternatives = 5;

// Throws InputError, with the numbers and nearest_alternatives(), if `plan`, as fit_memory()
// returned it, does not fit into the budget.
void require_fit(const RunConfig& config, const MemoryPlan& plan, const MemoryBudget& budget,
                 const TrainOptions& asked, const data::Corpus& corpus, int sharing = 1);

// Smallest --memory-limit for a plan of `rank_bytes` per rank, in whole MB.
ByteSize min_memory_limit(const RunConfig& config, std::int64_t rank_bytes);

}  // namespace muo::trainer
