#pragma once

#include <cstdint>

#include "base/enum_names.h"

namespace muo::graphs {

// The form of a step's micro-steps in its graph. kUnrolled: one after another; beyond
// StepGraph::kMaxUnrolled the step is several graphs: an opening and a middle one of that many,
// which is replayed, and a closing one. kLoop: all but the last as a loop, the last one, with its
// reductions, behind it. Both give the same bits.
enum class MicroSteps : std::uint8_t { kUnrolled, kLoop };
constexpr auto names_of(MicroSteps) { return name_list("unrolled", "loop"); }

}  // namespace muo::graphs
