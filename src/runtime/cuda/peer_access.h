#pragma once

#include <span>

namespace muo {

// The calling thread's current device.
int current_gpu();

// Enables access from the current GPU to the memory of all ranks' `gpus`, and checks that the
// collective kernels of all ranks on it can be resident at once. Throws InputError otherwise.
void connect_peers(int rank, std::span<const int> gpus);

// True if GPU `own` can access the memory of GPU `other`.
bool can_access(int own, int other);

}  // namespace muo
