#include "base/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "support/errors.h"

namespace muo {
namespace {

using test::message_of;

// While this object exists, no thread can be started, because the default stack size is too large.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t endless = before_;
    EXPECT_EQ(pthread_attr_setstacksize(&endless, std::size_t{1} << 48), 0);
    EXPECT_EQ(pthread_setattr_default_np(&endless), 0);
  }
  ~NoMoreThreads() { EXPECT_EQ(pthread_setattr_default_np(&before_), 0); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(StartThread, NamesTheLimitIfTheSystemRefuses) {
  const NoMoreThreads none;
  const auto work = [](std::size_t /*i*/) {};
  for (const std::string& said : {message_of<Error>([] { start_thread([] {}).join(); }),
                                  message_of<Error>([] { start_thread<std::jthread>([] {}); }),
                                  message_of<Error>([&] { parallel_for(2, 1000, work); })})
    EXPECT_THAT(said, testing::StartsWith("the system refuses a further thread: "));
  EXPECT_NO_THROW(parallel_for(1, 1000, work));
}

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

TEST(ParallelFor, RethrowsTheExceptionOfACall) {
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

TEST(ParallelFor, RethrowsTheExceptionOfTheSmallestIndex) {
  for (int again = 0; again < 50; ++again) {
    std::atomic<int> waiting = 4;
    const auto work = [&](std::size_t i) {  // all four throw at once, the first a little later
      for (--waiting; waiting > 0;)
        std::this_thread::yield();
      if (i == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      throw Error(concat(i));
    };
    EXPECT_EQ(message_of<Error>([&] { parallel_for(4, 4, work); }), "0");
  }
}

// Each case runs in its own process, because the setup cannot be undone.
class SignalsDeathTest : public testing::Test {
 protected:
  SignalsDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  [[noreturn]] static void end_with(bool good) { std::_Exit(good ? 0 : 1); }
  static bool blocks(int signal) {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    return sigismember(&now, signal) == 1;
  }
};

std::atomic<int> handled_by = 0;

TEST_F(SignalsDeathTest, AreHandledByTheSignalThread) {
  EXPECT_EXIT(
      {
        take_signals_on_own_thread();
        std::atomic<int> here = 0;
        const auto send = [&](std::size_t /*i*/) {
          for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPROF, SIGALRM, SIGUSR1, SIGRTMIN}) {
            handled_by = 0;
            std::signal(signal, [](int) { handled_by = gettid(); });
            kill(getpid(), signal);
            while (handled_by == 0)
              std::this_thread::yield();
            if (handled_by == gettid()) ++here;
          }
        };
        send(0);
        std::thread(send, 1).join();
        end_with(here == 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SignalsDeathTest, SynchronousSignalsStayWithTheirThread) {
  EXPECT_EXIT(
      {
        take_signals_on_own_thread();
        int other = 0;
        for (const int own :
             {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE, SIGTTIN, SIGTTOU})
          if (blocks(own)) ++other;
        std::atomic<int> in_threads = 0;
        parallel_for(2, 8, [&](std::size_t /*i*/) {
          if (blocks(SIGSEGV) || !blocks(SIGTERM)) ++in_threads;
        });
        end_with(other == 0 && in_threads == 0 && blocks(SIGTERM));
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SignalsDeathTest, ExceedingTheFileSizeLimitFailsTheWrite) {
  EXPECT_EXIT(
      {
        take_signals_on_own_thread();
        FILE* const file = std::tmpfile();
        const rlimit none = {};
        setrlimit(RLIMIT_FSIZE, &none);
        end_with(write(fileno(file), "x", 1) == -1 && errno == EFBIG);
      },
      testing::ExitedWithCode(0), "");
}

// The signal state inherited at the start is kept: nohup ignores SIGHUP, and a shell may block
// signals.
TEST_F(SignalsDeathTest, SignalsBlockedBeforeStayBlocked) {
  EXPECT_EXIT(
      {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &one, nullptr);
        take_signals_on_own_thread();
        std::signal(SIGUSR1, [](int) { handled_by = gettid(); });
        kill(getpid(), SIGTERM);
        kill(getpid(), SIGUSR1);
        while (handled_by == 0)
          std::this_thread::yield();
        end_with(true);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace muo
