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

// Options that make a run fit into memory, and their effect.
struct Alternative {
  std::vector<GivenOption> options;  // to be added to the given options
  RunConfig config;                  // with these options, after fit_memory()
  std::int64_t bytes = 0;            // planned tensors of all ranks
  bool fits = false;
  double time = 1;  // predicted step time relative to the given options, by FLOPs and devices

  [[nodiscard]] std::string text() const;  // "--dtype bf16 (1.02 GiB, rounds to bf16)"
};

// Returns at most kMaxAlternatives alternatives, cheapest first, found by planning each one: every
// option alone, then pairs, then the smallest combination that fits. If even all options together
// do not fit, returns the alternative that needs the least memory, with fits == false; nothing if
// no option can be changed. `asked`: the options as given, from which resolve() made `config`.
// `sharing`: number of runs that share the memory.
std::vector<Alternative> nearest_alternatives(const RunConfig& config, const TrainOptions& asked,
                                              const data::Corpus& corpus, int sharing = 1);
inline constexpr std::size_t kMaxAlternatives = 5;

// Throws InputError, with the numbers and nearest_alternatives(), if `plan`, the result of
// fit_memory(), does not fit into the budget.
void require_fit(const RunConfig& config, const MemoryPlan& plan, const MemoryBudget& budget,
                 const TrainOptions& asked, const data::Corpus& corpus, int sharing = 1);

// The smallest --memory-limit, in whole MB, for a plan of `rank_bytes` per rank.
ByteSize min_memory_limit(const RunConfig& config, std::int64_t rank_bytes);

}  // namespace muo::trainer
