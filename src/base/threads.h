#pragma once

#include <csignal>
#include <cstddef>
#include <ctime>
#include <functional>

namespace muo {

// Cores that this process may use; at least 1.
int usable_cores();

// Threads that start within this scope get no signals: those are the main thread's business. But
// SIGBUS is that of the thread that reads a mapping (file_mapping.h).
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Calls work(i) for each i below `count`, on so many threads, the smallest i first; returns when
// all are done. Throws what a call threw, of several the first thread's; the calls after it may be
// left out.
void parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& work);

// Time that the calling thread itself has run: unlike the clock on the wall, it hardly depends on
// what else the machine does.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace muo
