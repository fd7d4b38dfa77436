#pragma once

#include <algorithm>
#include <limits>

#include "base/threads.h"

namespace muo::test {

// CPU seconds of the calling thread in `body`: the minimum of three calls, which other work on
// the machine hardly affects. Use the ratio of two such times to measure how the cost of an
// algorithm grows.
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
