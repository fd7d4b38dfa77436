#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/phase_clock.h"

namespace muo::graphs {

// The phases of a step on compute, in order, each named by compute's work or wait.
enum class StepPhase : std::uint8_t {
  kBetween,  // host: from the end of a step, or of one of its graphs, to the start of the next
  kBegin,    // schedules
  kForward,
  kLosses,    // head and its backward
  kBackward,  // of blocks and embeddings, overlapped with reductions and updates
  kUpdate,    // reductions and updates after backward: exposed
  kGather,    // exposed: commit, metrics, and waits for the new weights, at the end of the step or,
              // if pipelined, where the next forward needs them
};
inline constexpr std::array<std::string_view, 7> kStepPhases = {
    "between", "begin", "forward", "losses", "backward", "update", "gather"};
static_assert(kStepPhases.size() <= PhaseClock::kPhases);

}  // namespace muo::graphs
