#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/run/memory_fit.h"
#include "app/run/run_config.h"

namespace muo::app {

struct GivenOption {
  std::string name, value;
};

// Options with which a run that does not fit does, and what they make of it.
struct Alternative {
  std::vector<GivenOption> options;  // to be added to those that were asked for
  RunConfig config;                  // with them, after fit_memory()
  std::int64_t bytes = 0;            // of all ranks' planned tensors
  bool fits = false;
  double time = 1;  // of a step, predicted by FLOPs and devices, over that of what was asked

  [[nodiscard]] std::string text() const;  // "--dtype bf16 (1.02 GiB, numbers are bf16)"
};

// The nearest of them, the cheapest first, at most kMostAlternatives, found by planning each: every
// option alone, then two of them, otherwise the smallest combination that fits. If not even all of
// them fit, what needs least, as the only one, with fits == false; nothing if there is no option to
// change. `asked` as given, before resolve(), which made `config` of it.
std::vector<Alternative> nearest_alternatives(const RunConfig& config, const TrainOptions& asked,
                                              const data::Corpus& corpus, int sharing = 1);
inline constexpr std::size_t kMostAlternatives = 5;

// Throws InputError, with the numbers and nearest_alternatives(), if `plan`, as fit_memory() gave
// it, does not fit into the budget.
void require_fit(const RunConfig& config, const MemoryPlan& plan, const MemoryBudget& budget,
                 const TrainOptions& asked, const data::Corpus& corpus, int sharing = 1);

// What --memory-limit has to be for a plan of so many bytes of a rank, in whole MB.
ByteSize least_limit(const RunConfig& config, std::int64_t rank_bytes);

}  // namespace muo::app
