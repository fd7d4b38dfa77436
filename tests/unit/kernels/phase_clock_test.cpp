#include "kernels/phase_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "base/check.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo::test {
namespace {

struct Clock {
  KernelStream stream;
  HostTensor memory{{static_cast<std::int64_t>(sizeof(PhaseClock))}, DType::kBytes};

  [[nodiscard]] const PhaseClock& read() const { return *memory.tensor().as_struct<PhaseClock>(); }
  void mark_phase(int phase) { muo::mark_phase(stream, {.clock = memory, .phase = phase}); }
};

TEST(Lap, TheFirstStartsTheClock) {
  Clock clock;
  clock.mark_phase(2);
  EXPECT_GT(clock.read().last, 0);
  for (int i = 0; i < PhaseClock::kPhases; ++i) {
    EXPECT_EQ(clock.read().elapsed[i], 0) << i;
    EXPECT_EQ(clock.read().marks[i], 0) << i;
  }
}

TEST(Lap, AddsTheTimeSinceThePreviousLapToThePhase) {
  Clock clock;
  clock.mark_phase(0);
  const std::int64_t first = clock.read().last;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock.mark_phase(3);
  const std::int64_t second = clock.read().last;
  clock.mark_phase(1);
  clock.mark_phase(3);
  const PhaseClock& got = clock.read();
  // There is a tolerance, because the clocks of host and GPU need not agree to the microsecond.
  EXPECT_GE(second - first, 19'000'000);
  EXPECT_EQ(got.elapsed[0], 0);
  EXPECT_GE(got.elapsed[3], second - first);
  EXPECT_EQ(got.elapsed[1] + got.elapsed[3], got.last - first) << "no time is lost";
  EXPECT_EQ(got.marks[0], 0);
  EXPECT_EQ(got.marks[1], 1);
  EXPECT_EQ(got.marks[3], 2);
}

TEST(Lap, APhaseThatTheClockLacksIsAnError) {
  Clock clock;
  EXPECT_THROW(clock.mark_phase(PhaseClock::kPhases), Error);
  EXPECT_THROW(clock.mark_phase(-1), Error);
}

}  // namespace
}  // namespace muo::test
