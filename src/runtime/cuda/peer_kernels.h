#pragma once

#include <vector>

#include "runtime/comm/peer_work.h"
#include "runtime/stream.h"

namespace muo::peer {

// Eager or captured. Throws Error if sums of the dtypes are not supported.
void launch_collective(NativeStream stream, const Work& work);

// Addresses of all kernels, to load them early and to query their resources.
std::vector<const void*> kernels();

}  // namespace muo::peer
