#pragma once

#include <cstdint>
#include <functional>

#include "runtime/memory/arena.h"
#include "runtime/stream.h"

namespace muo {

// Calls `visit` for every access of the graph to a tensor of the arena, in capture order, reads of
// a node before its writes: node, index of the tensor, offset in it, access. Throws Error for an
// access that leaves its tensor. Bytes that are not the arena's are skipped.
using TensorUse = std::function<void(std::uint32_t, std::size_t, std::int64_t, const Access&)>;
void for_each_use(const TraceArena& arena, const GraphTrace& graph, const TensorUse& visit);

}  // namespace muo
