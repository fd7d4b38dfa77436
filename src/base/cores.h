#pragma once

namespace muo {

// Cores that this process may use; at least 1.
int usable_cores();
// What each of `world` ranks may use of them; at least 1.
int cores_per_rank(int world);

}  // namespace muo
