#pragma once

#include <vector>

#include "runtime/comm/peer_work.h"
#include "runtime/stream.h"

namespace muo::peer {

// Eager or captured. Throws Error if the dtypes have no sum.
void launch_collective(NativeStream stream, const Work& work);

// The addresses of all kernels, for loading them early and for asking what they need.
std::vector<const void*> kernels();

}  // namespace muo::peer
