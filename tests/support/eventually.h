#pragma once

#include <chrono>
#include <thread>

namespace muo::test {

// Polls until `condition` is true, for at most 30 s, and returns whether it became true. For events
// that cannot be awaited otherwise.
template <class Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace muo::test
