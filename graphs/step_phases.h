#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/phase_clock.h"

namespace muo::graphs {

// The phases of a step on compute, in order, each named for what compute does or waits for.
enum class StepPhase : std::uint8_t {
  kBetween,  // from the end of a step, or of one of its graphs, to the begin of the next: the
             // host's
  kBegin,    // schedules
  kForward,
  kLosses,    // head and its backward
  kBackward,  // of the blocks and embeddings, while buckets are reduced and updated beside it
  kUpdate,    // what of reductions and updates is left when backward has ended: exposed
  kGather,    // commit, metrics, and waiting for the new weights, at the end of the step or, if
              // pipelined, where the next one's forward needs them: exposed
};
inline constexpr std::array<std::string_view, 7> kStepPhases = {
    "between", "begin", "forward", "losses", "backward", "update", "gather"};
static_assert(kStepPhases.size() <= PhaseClock::kPhases);

}  // namespace muo::graphs
