#pragma once

#include <span>

namespace muo {

// Of the calling thread.
int current_gpu();

// Makes the memory of all `gpus`, those of the ranks, accessible to the current one, and sees that
// the kernels of the collectives of all ranks on it fit. Throws InputError if that cannot be.
void connect_peers(int rank, std::span<const int> gpus);

// Whether GPU `own` can access the memory of another one.
bool can_access(int own, int other);

}  // namespace muo
