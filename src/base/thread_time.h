#pragma once

#include <ctime>

namespace muo {

// Time that the calling thread itself has run: unlike the clock on the wall, it hardly depends on
// what else the machine does.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace muo
