#pragma once

#include "runtime/stream.h"

namespace muo {

// Throws Error, naming both nodes and the bytes, if two nodes of the trace touch the same bytes, at
// least one writes, and no path of dependencies orders them: a forgotten event (FastTrack,
// Flanagan & Freund 2009, with one clock per stream).
void check_races(const GraphTrace& trace);

}  // namespace muo
