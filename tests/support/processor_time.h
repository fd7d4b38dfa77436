#pragma once

#include <algorithm>
#include <limits>

#include "base/threads.h"

namespace muo::test {

// Seconds of the calling thread's processor time in `body`: the least of three calls, which other
// work on the machine hardly changes. For how an algorithm's cost grows, as a ratio of two of them.
template <class Body>
double processor_seconds(const Body& body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double begin = thread_seconds();
    body();
    least = std::min(least, thread_seconds() - begin);
  }
  return least;
}

}  // namespace muo::test
