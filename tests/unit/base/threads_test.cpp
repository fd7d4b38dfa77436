#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace muo {
namespace {

TEST(ParallelFor, CallsEachOnce) {
  for (const int threads : {0, 1, 2, 7}) {
    for (const std::size_t count : {0UL, 1UL, 5UL, 1000UL}) {
      std::vector<std::atomic<int>> calls(count);
      parallel_for(threads, count, [&](std::size_t i) { ++calls[i]; });
      for (const auto& each : calls)
        ASSERT_EQ(each, 1);
    }
  }
}

TEST(ParallelFor, ThrowsWhatACallThrew) {
  for (const int threads : {1, 3}) {
    std::atomic<int> calls = 0;
    const auto work = [&](std::size_t i) {
      ++calls;
      if (i == 5) throw std::runtime_error("five");
    };
    EXPECT_THROW(parallel_for(threads, 1'000'000, work), std::runtime_error);
    EXPECT_LT(calls, 1'000'000);
  }
}

}  // namespace
}  // namespace muo
