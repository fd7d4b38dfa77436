#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/signals_blocked.h"

namespace muo {

// Calls body(begin, end) for ranges that make up [0, count), on at most `threads` threads, of which
// the caller's is one, and waits. Where they are cut depends on `count` and `threads`. `body` must
// not throw.
template <class Body>
void on_threads(int threads, std::int64_t count, const Body& body) {
  constexpr std::int64_t kLeast = 1 << 14;  // elements that are worth the start of a thread
  const std::int64_t parts =
      std::clamp<std::int64_t>(count / kLeast, 1, std::max<std::int64_t>(1, threads));
  const auto begin_of = [=](std::int64_t part) { return count / parts * part; };
  std::vector<std::jthread> others;
  if (parts > 1) {
    const SignalsBlocked in_the_threads;
    for (std::int64_t part = 1; part < parts; ++part)
      others.emplace_back(
          [&body, begin = begin_of(part), end = part + 1 == parts ? count : begin_of(part + 1)] {
            body(begin, end);
          });
  }
  body(std::int64_t{0}, parts == 1 ? count : begin_of(1));
}

}  // namespace muo
