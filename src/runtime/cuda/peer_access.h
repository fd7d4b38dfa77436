#pragma once

#include "runtime/cuda/peer_communicator.h"

namespace muo {

// GPUs of this machine, one or several, each with one rank or several.
PeerPlatform cuda_peer_platform();

}  // namespace muo
