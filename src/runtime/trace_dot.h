#pragma once

#include <string>

#include "runtime/stream.h"

namespace muo {

// The graph in Graphviz's language: a node for each piece of work, with its number and name, in a
// column for its stream; an edge from each node that it waits for.
std::string trace_dot(const GraphTrace& trace);

}  // namespace muo
