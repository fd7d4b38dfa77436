#include "trainer/train/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <thread>

namespace muo::trainer {
namespace {

// Raises the signals and exits with the number that a run then reads.
void exit_after(std::initializer_list<int> signals) {
  const StopSignal stop;
  for (const int signal : signals)
    std::raise(signal);
  ::_exit(stop.number());
}

TEST(StopSignalDeathTest, IsTheFirstHoweverManyComeAtOnce) {
  for (const int first : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(exit_after({first, first, SIGTERM, SIGINT, SIGXCPU}),
                testing::ExitedWithCode(first), "");
}

TEST(StopSignalDeathTest, EndsTheProgramASecondLater) {
  const auto after_a_second = [](int signal) {
    const StopSignal stop;
    std::raise(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1001));
    std::raise(signal);
    ::_exit(stop.number());
  };
  for (const int ends : {SIGINT, SIGTERM})
    EXPECT_EXIT(after_a_second(ends), testing::KilledBySignal(ends), "");
  for (const int saves : {SIGHUP, SIGUSR1, SIGXCPU})
    EXPECT_EXIT(after_a_second(saves), testing::ExitedWithCode(SIGUSR1), "");
}

TEST(StopSignalDeathTest, KeepsIgnoredSignalsIgnored) {
  const auto ignoring = [] {
    std::signal(SIGUSR2, SIG_IGN);
    exit_after({SIGUSR2, SIGUSR1});
  };
  EXPECT_EXIT(ignoring(), testing::ExitedWithCode(SIGUSR1), "");
}

}  // namespace
}  // namespace muo::trainer
