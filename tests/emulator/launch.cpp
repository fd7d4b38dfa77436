#include <pthread.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "emulator/gpu.h"
#include "emulator/kernel_name.h"
#include "emulator/scheduler.h"
#include "emulator/shared_memory.h"

namespace muo::simt {
namespace {

// State of an OS thread that launches, kept between launches as fibers are expensive to create. It
// is under a pthread key, as SharedMemory treats thread_local variables as __shared__.
struct Launcher {
  std::vector<std::unique_ptr<Scheduler>> workers;
  std::uint64_t launches = 0;
};

pthread_key_t launcher_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    MUO_CHECK(pthread_key_create(&made, [](void* p) { delete static_cast<Launcher*>(p); }) == 0);
    return made;
  }();
  return key;
}

Launcher& launcher() {
  auto* found = static_cast<Launcher*>(pthread_getspecific(launcher_key()));
  if (found == nullptr) {
    found = new Launcher;
    MUO_CHECK(pthread_setspecific(launcher_key(), found) == 0);
  }
  return *found;
}

}  // namespace

void check(const Launch& launch) {
  const dim3 grid = launch.grid;
  const dim3 block = launch.block;
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  MUO_CHECK(threads > 0 && threads <= 1024 && block.z <= 64, "block of (", block.x, ", ", block.y,
            ", ", block.z, ") threads, kernel ", kernel_name(launch.kernel));
  MUO_CHECK(grid.x > 0 && grid.x < 1U << 31 && grid.y > 0 && grid.y < 1U << 16 && grid.z > 0 &&
                grid.z < 1U << 16,
            "grid of (", grid.x, ", ", grid.y, ", ", grid.z, ") blocks, kernel ",
            kernel_name(launch.kernel));
  check_resources(launch);
}

void run(const Launch& launch) {
  Launcher& own = launcher();
  const unsigned blocks = launch.grid.x * launch.grid.y * launch.grid.z;
  const unsigned workers = blocks == 1 ? 1 : launch.resident ? blocks : settings().workers;
  while (own.workers.size() < workers)
    own.workers.push_back(std::make_unique<Scheduler>());
  // Each launch has another schedule, but every run of the program has the same ones.
  const std::uint64_t seed = settings().seed + 0x100000001B3U * own.launches++;
  const auto work = [&](unsigned worker) {
    own.workers[worker]->run(launch, worker, workers, seed);
  };
  if (workers == 1) return work(0);
  std::vector<std::jthread> threads;
  for (unsigned worker = 0; worker < workers; ++worker)
    threads.emplace_back(work, worker);
}

}  // namespace muo::simt
