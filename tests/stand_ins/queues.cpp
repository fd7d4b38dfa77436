#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "emulator/sanitizers.h"
#include "stand_ins/world.h"

#ifdef __SANITIZE_THREAD__
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): ThreadSanitizer's names
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
// NOLINTEND(readability-identifier-naming)
}
#endif

namespace muo::stand_in {

namespace {

std::mutex& mutex() {
  static std::mutex& one = *new std::mutex;  // never destroyed, like World
  return one;
}

}  // namespace

#ifdef __SANITIZE_THREAD__
Lock::Lock() {
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  held_ = std::unique_lock(mutex());
}
Lock::~Lock() {
  held_.unlock();
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
void Lock::publish(char* edge) {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  simt::release(edge);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}
void Lock::observe(char* edge) {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  simt::acquire(edge);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}
#else
Lock::Lock() : held_(mutex()) {}
Lock::~Lock() = default;
void Lock::publish(char* /*edge*/) {}
void Lock::observe(char* /*edge*/) {}
#endif

namespace {

// A random delay before some work, so that concurrent work runs in another order.
std::chrono::microseconds random_delay() {
  World& all = world();
  const std::uint64_t random = all.settings.seed == 0 ? 1 : all.next_random();
  return std::chrono::microseconds(random % 16 == 0 ? random >> 32U & 127U : 0);
}

thread_local const Operation* running = nullptr;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run(Operation& operation) {
  running = &operation;
  simt::acquire(&operation.submitted);
  for (const OperationPtr& before : operation.after)
    simt::acquire(&before->finished);
  try {
    if (operation.task)
      run_profiled(operation.name, operation.node,
                   operation.launch == nullptr ? 0 : operation.launch->correlation, operation.task);
  } catch (const std::exception& error) {
    const Lock lock;
    fault(*operation.gpu, operation.name + ": " + error.what());
  }
  operation.task = nullptr;
  simt::release(&operation.finished);
}

}  // namespace

const Operation* running_operation() { return running; }

void run_profiled(const std::string& name, std::uint64_t node, std::uint32_t correlation,
                  const Task& task) {
  Profiler* const profiler = world().profiler;
  const double begin = profiler == nullptr ? 0 : now();
  task();
  if (profiler != nullptr) profiler->ran(name, node, correlation, begin, now());
}

void Queue::push(const OperationPtr& operation) {
  operations_.push_back(operation);
  if (thread_.joinable()) return wake();
  thread_ = std::thread([this] { work(); });
}

std::thread Queue::stop() {
  if (!thread_.joinable()) return {};
  stopping_ = true;
  wake();
  if (!waits_) thread_.detach();  // it may be blocked in its task
  return std::move(thread_);
}

void Queue::work() {
  for (;;) {
    OperationPtr operation;
    std::chrono::microseconds delay{0};
    {
      Lock lock;
      waits_ = true;
      changed_.wait(lock.held(), [&] {
        return stopping_ || (!operations_.empty() && operations_.front()->unmet == 0);
      });
      if (stopping_) return;
      waits_ = false;
      operation = std::move(operations_.front());
      operations_.pop_front();
      if (operation->gpu->error != cudaSuccess)
        operation->task = nullptr;  // a lost GPU does no work
      delay = random_delay();
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    run(*operation);
    const Lock lock;
    World& all = world();
    operation->done = true;
    for (Operation* next : operation->successors)
      if (--next->unmet == 0) next->queue->wake();
    operation->gpu->pending.erase(operation->number);
    for (const std::uint64_t number : operation->memory)
      if (--all.in_use[number] == 0) all.in_use.erase(number);
    operation->after.clear();
    operation->successors.clear();
    all.finished.notify_all();
    operation.reset();
  }
}

OperationPtr submit(Gpu& gpu, Queue& queue, Operation description) {
  World& all = world();
  auto operation = std::make_shared<Operation>(std::move(description));
  operation->gpu = &gpu;
  operation->queue = &queue;
  operation->number = ++all.numbers;
  for (const OperationPtr& before : operation->after) {
    if (before->done) continue;
    ++operation->unmet;
    before->successors.push_back(operation.get());  // its queue keeps it alive
  }
  for (const std::uint64_t number : operation->memory)
    ++all.in_use[number];
  gpu.pending.insert(operation->number);
  Lock::publish(&operation->submitted);
  queue.push(operation);
  return operation;
}

void wait_for(Lock& lock, OperationPtr operation) {
  if (operation == nullptr) return;
  world().finished.wait(lock.held(),
                        [&] { return operation->done || operation->gpu->error != cudaSuccess; });
  Lock::observe(&operation->finished);
}

void wait_for_all(Lock& lock, Gpu& gpu, const std::string& why) {
  World& all = world();
  wait_for_turn(lock, gpu);
  gpu.alone = std::this_thread::get_id();
  const std::uint64_t newest = all.numbers;
  const bool idle =
      all.finished.wait_for(lock.held(), std::chrono::duration<double>(all.settings.patience), [&] {
        return gpu.pending.empty() || *gpu.pending.begin() > newest || gpu.error != cudaSuccess;
      });
  gpu.alone = {};
  all.finished.notify_all();
  if (!idle) misuse(why + " timed out waiting for all work of GPU " + std::to_string(gpu.index));
}

void wait_for_turn(Lock& lock, Gpu& gpu) {
  world().finished.wait(lock.held(), [&] {
    return gpu.alone == std::thread::id() || gpu.alone == std::this_thread::get_id();
  });
}

Queue& queue_for_one_more(Gpu& gpu) {
  Queue& queue =
      world().settings.in_turn
          ? *gpu.queues[gpu.turn++ % gpu.queues.size()]
          : **std::ranges::min_element(gpu.queues, {}, [](const auto& one) { return one->users; });
  ++queue.users;
  return queue;
}

}  // namespace muo::stand_in
