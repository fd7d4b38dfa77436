#pragma once

#include <algorithm>
#include <limits>

#include "base/threads.h"

namespace muo::test {

// CPU seconds of the calling thread in `body`: the minimum of three calls, which is hardly affected
// by other work on the machine. For the growth of an algorithm's cost, as a ratio of two such
// times.
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
