#pragma once

#include <cstdint>
#include <cstdio>

#include "kernels/cuda/sums.h"

namespace muo::cuda {

// Called for an invalid index, e.g. a token from damaged data. A kernel must not read beyond a
// table, and cannot throw as the host does: it prints one line and traps. The host's next call
// on this device reports the failure. Noreturn and not inlined, so that the call costs the
// kernel no registers.
[[noreturn, gnu::noinline]] inline __device__ void stop_at_index(const char* what,
                                                                 std::int32_t value,
                                                                 std::int64_t position, int lowest,
                                                                 std::int64_t bound) {
  printf("%s %d at position %lld is outside [%d, %lld)\n", what, value,
         static_cast<long long>(position), lowest, static_cast<long long>(bound));
  __trap();
  __builtin_unreachable();
}

// Calls stop_at_index if not `inside`. For whole warps, of which one lane prints the line.
__device__ __forceinline__ void check_index(bool inside, const char* what, std::int32_t value,
                                            std::int64_t position, int lowest, std::int64_t bound) {
  const unsigned outside = __ballot_sync(kAllLanes, inside ? 0 : 1);
  if (outside == 0) return;
  if (static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(outside)) - 1)
    stop_at_index(what, value, position, lowest, bound);
  __syncwarp();
  __trap();
}

}  // namespace muo::cuda
