#pragma once

#include "runtime/cuda/peer_communicator.h"

namespace muo {

// GPUs of this machine, one or several, each with one rank or several.
PeerPlatform cuda_peer_platform();

// Whether GPU `own` can access the memory of another one.
bool can_access(int own, int other);

}  // namespace muo
