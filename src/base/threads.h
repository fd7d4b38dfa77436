#pragma once

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

namespace muo {

// Cores that this process may use; at least 1.
int usable_cores();
// What each of `world` ranks may use of them; at least 1.
int cores_per_rank(int world);

// Threads that start within this scope get no signals: those are the main thread's business.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Calls body(begin, end) for ranges that make up [0, count), on at most `threads` threads, of which
// the caller's is one, and waits. Where they are cut depends on `count` and `threads`. `body` must
// not throw.
template <class Body>
void on_threads(int threads, std::int64_t count, const Body& body) {
  constexpr std::int64_t kLeast = 1 << 14;  // elements that are worth the start of a thread
  const std::int64_t parts =
      std::clamp<std::int64_t>(count / kLeast, 1, std::max<std::int64_t>(1, threads));
  const auto begin_of = [=](std::int64_t part) { return count / parts * part; };
  std::vector<std::jthread> others;
  if (parts > 1) {
    const SignalsBlocked in_the_threads;
    for (std::int64_t part = 1; part < parts; ++part)
      others.emplace_back(
          [&body, begin = begin_of(part), end = part + 1 == parts ? count : begin_of(part + 1)] {
            body(begin, end);
          });
  }
  body(std::int64_t{0}, parts == 1 ? count : begin_of(1));
}

// Time that the calling thread itself has run: unlike the clock on the wall, it hardly depends on
// what else the machine does.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace muo
