#pragma once

#include <chrono>
#include <cstddef>
#include <ctime>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/system_limits.h"

namespace muo {

// The number of cores that this process may use, at least 1: the size of its affinity mask, limited
// by the CPU time that control groups grant (cpu_quota()).
int usable_cores();

// The system refused to start a thread. The text names the limit and what to do.
class ThreadRefused : public Error {
 public:
  using Error::Error;
};

// Constructs a std::thread or std::jthread from these arguments. Throws ThreadRefused.
template <class Thread = std::thread, class... Arguments>
Thread start_thread(Arguments&&... arguments) {
  try {
    return Thread(std::forward<Arguments>(arguments)...);
  } catch (const std::system_error&) {
    throw ThreadRefused(refused_thread_text());
  }
}

// Starts a thread that alone runs the handlers of asynchronous signals; they are blocked in the
// calling thread and in the threads that it starts. This is necessary because oneDNN's matrix
// products point the stack pointer into their workspace, where a handler's frame would overwrite
// the heap. Signals that a thread causes itself (a fault, a closed pipe, terminal access from the
// background) are still delivered to it, except SIGXFSZ: exceeding the file size limit makes the
// write fail with EFBIG. After a handler has run, the signal thread calls `then`, which is not
// restricted to async-signal-safe functions; further signals wait meanwhile. Call this once, before
// other threads exist. Throws as start_thread() does.
void take_signals_on_own_thread(std::function<void()> then = {});

// Blocks asynchronous signals in the calling thread and in the threads that it starts.
void block_signals_from_outside();

// Calls work(i) for each i < `count` on `threads` threads, in ascending order of i, and returns
// when all calls have ended. If calls throw, rethrows the exception of the smallest i, which is the
// same on every run, and may skip later calls. Also throws as start_thread() does.
void parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& work);

// Time of the steady clock in seconds.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time of the calling thread in seconds. Unlike wall-clock time, it hardly depends on the
// machine's other load.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace muo
