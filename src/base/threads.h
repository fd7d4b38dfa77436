#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/system_limits.h"

namespace muo {

// Cores that this process may use, at least 1: those that it may run on, and no more than the time
// that control groups grant it (cpu_quota()).
int usable_cores();

// The system has refused a thread: by which limit, and what to do.
class ThreadRefused : public Error {
 public:
  using Error::Error;
};

// A thread, std::thread or std::jthread, made of these arguments. Throws ThreadRefused.
template <class Thread = std::thread, class... Arguments>
Thread start_thread(Arguments&&... arguments) {
  try {
    return Thread(std::forward<Arguments>(arguments)...);
  } catch (const std::system_error&) {
    throw ThreadRefused(refused_thread_text());
  }
}

// From here on a thread that does nothing else runs the handlers of signals from outside; this one
// and those that it starts have them blocked: oneDNN's products point the stack pointer into their
// workspace, where a handler's frame would overwrite the heap. What a thread brings upon itself (a
// fault, a closed pipe, the terminal of another job) it takes itself, but for SIGXFSZ: a file that
// may not grow is an error of the write, EFBIG. After handlers have run that thread calls `then`,
// which may do what no handler may; signals wait meanwhile. Call it once, before there are other
// threads. Throws as start_thread().
void take_signals_on_own_thread(std::function<void()> then = {});

// In the calling thread and those that it starts.
void block_signals_from_outside();

// Calls work(i) for each i below `count`, on so many threads, the smallest i first; returns when
// all are done. Throws what the smallest i threw, which is the same on every run; larger ones may
// be left out. Throws as start_thread() as well.
void parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& work);

// Time that the calling thread itself has run: unlike the clock on the wall, it hardly depends on
// what else the machine does.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace muo
