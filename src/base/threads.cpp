#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace muo {

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

void parallel_for(int threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const std::size_t workers = std::min(static_cast<std::size_t>(std::max(threads, 1)), count);
  std::vector<std::exception_ptr> failures(workers);
  const auto run = [&](std::size_t worker) {
    try {
      for (std::size_t i = next++; i < count; i = next++)
        work(i);
    } catch (...) {
      failures[worker] = std::current_exception();
      next = count;
    }
  };
  if (workers == 1) {
    run(0);
  } else {
    const SignalsBlocked blocked;
    std::vector<std::jthread> running;
    for (std::size_t worker = 0; worker < workers; ++worker)
      running.emplace_back(run, worker);
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace muo
