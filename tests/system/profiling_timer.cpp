// A profiler for tests, loaded before the program (LD_PRELOAD): SIGPROF for each millisecond of
// processor time, to a handler of its own, as those send it that sample. At the end the file
// PROFILING_TIMER_FILE has the number of signals, and of those that were handled by other threads
// than the first.

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

// From before main() to after it.
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
