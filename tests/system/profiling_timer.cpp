// A profiler for tests, loaded by LD_PRELOAD. It sends SIGPROF for each millisecond of CPU time to
// a handler of its own, as sampling profilers do. At the end it writes to the file
// PROFILING_TIMER_FILE the number of signals, and the number of those that threads other than the
// first handled.

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>

namespace {

std::atomic<int> signals = 0, elsewhere = 0, first = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void handle(int /*signal*/) {
  ++signals;
  int thread = 0;
  if (!first.compare_exchange_strong(thread, gettid()) && thread != gettid()) ++elsewhere;
}

// Exists from before main() until after it.
class Timer {
 public:
  Timer() {
    std::signal(SIGPROF, handle);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGPROF;
    constexpr timespec kPeriod = {.tv_sec = 0, .tv_nsec = 1'000'000};
    const itimerspec times = {.it_interval = kPeriod, .it_value = kPeriod};
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer_) != 0 ||
        timer_settime(timer_, 0, &times, nullptr) != 0)
      std::abort();
  }
  ~Timer() {
    timer_delete(timer_);
    const char* const file = std::getenv("PROFILING_TIMER_FILE");  // NOLINT(concurrency-mt-unsafe)
    if (file != nullptr) std::ofstream(file) << signals << ' ' << elsewhere << '\n';
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  timer_t timer_{};
};

const Timer kTimer;

}  // namespace
