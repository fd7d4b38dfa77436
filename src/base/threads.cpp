#include "base/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <optional>
#include <vector>

namespace muo {

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  const int allowed = std::max(1, CPU_COUNT(&cores));
  const std::optional<CpuQuota> quota = cpu_quota();
  return quota ? std::min(allowed, quota->cores) : allowed;
}

void take_signals_on_own_thread(std::function<void()> then) {
  sigset_t at_start;
  pthread_sigmask(SIG_BLOCK, nullptr, &at_start);
  block_signals_from_outside();
  const auto take = [at_start, then = std::move(then)] {
    for (;;) {
      ::sigsuspend(&at_start);  // NOLINT(concurrency-mt-unsafe): safe on Linux
      if (then) then();
    }
  };
  start_thread(take).detach();
}

void block_signals_from_outside() {
  sigset_t from_outside;
  sigfillset(&from_outside);
  // SIGTTIN and SIGTTOU stay unblocked: otherwise reading from the terminal fails instead of
  // waiting.
  for (const int own :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE, SIGTTIN, SIGTTOU})
    sigdelset(&from_outside, own);
  pthread_sigmask(SIG_BLOCK, &from_outside, nullptr);
}

void parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const std::size_t workers = std::min(static_cast<std::size_t>(std::max(threads, 1)), count);
  struct Failure {
    std::size_t at = 0;
    std::exception_ptr what;
  };
  std::vector<Failure> failures(workers, {.at = count, .what = {}});
  const auto run = [&](std::size_t worker) {
    std::size_t i = 0;
    try {
      for (i = next++; i < count; i = next++)
        work(i);
    } catch (...) {
      failures[worker] = {.at = i, .what = std::current_exception()};
      next = count;
    }
  };
  if (workers == 1) {
    run(0);
  } else {
    std::vector<std::jthread> running;
    try {
      for (std::size_t worker = 0; worker < workers; ++worker)
        running.push_back(start_thread<std::jthread>(run, worker));
    } catch (const ThreadRefused&) {
      next = count;
      throw;
    }
  }
  if (count == 0) return;
  const Failure& first = *std::ranges::min_element(failures, {}, &Failure::at);
  if (first.what) std::rethrow_exception(first.what);
}

}  // namespace muo
