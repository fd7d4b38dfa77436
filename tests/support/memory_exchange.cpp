#include "support/memory_exchange.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <span>

#include "base/check.h"
#include "runtime/rendezvous.h"

namespace muo::test {

struct MemoryExchange::World {
  struct Way {  // from one process to another
    std::deque<std::span<const std::byte>> waiting;
    std::size_t taken = 0;  // messages
    std::size_t bytes = 0;
  };
  Way& way(int from, int to) {
    return ways[static_cast<std::size_t>(from) * static_cast<std::size_t>(processes) +
                static_cast<std::size_t>(to)];
  }

  int processes = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Way> ways;
  bool unequal = false;  // sizes did not match: no more reads
};

class MemoryExchange::End final : public ProcessExchange {
 public:
  End(World& world, int process) : world_(world), process_(process) {}

  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    std::unique_lock lock(world_.mutex);
    throw_if_aborted();
    std::vector<std::size_t> due(static_cast<std::size_t>(world_.processes));
    for (int to = 0; to < world_.processes; ++to)
      due[static_cast<std::size_t>(to)] = way_to(to).taken + way_to(to).waiting.size();
    for (const Send& send : sends) {
      way_to(send.process).waiting.push_back(send.bytes);
      ++due[static_cast<std::size_t>(send.process)];
    }
    world_.changed.notify_all();
    for (const Receive& receive : receives)
      take(lock, receive);
    for (int to = 0; to < world_.processes; ++to)
      wait(lock, [&] { return way_to(to).taken >= due[static_cast<std::size_t>(to)]; });
  }

  void abort() noexcept override {
    const std::lock_guard lock(world_.mutex);
    aborted_ = true;
    // What this process has sent must no longer be read.
    for (int to = 0; to < world_.processes; ++to)
      way_to(to).waiting.clear();
    world_.changed.notify_all();
  }

 private:
  World::Way& way_to(int process) { return world_.way(process_, process); }

  void take(std::unique_lock<std::mutex>& lock, const Receive& receive) {
    World::Way& way = world_.way(receive.process, process_);
    wait(lock, [&] { return !way.waiting.empty(); });
    const std::span<const std::byte> bytes = way.waiting.front();
    if (bytes.size() != receive.bytes.size()) {
      world_.unequal = true;
      world_.changed.notify_all();
      throw Error(concat("process ", receive.process, " sends ", bytes.size(), " bytes, process ",
                         process_, " receives ", receive.bytes.size()));
    }
    std::copy(bytes.begin(), bytes.end(), receive.bytes.begin());
    way.waiting.pop_front();
    ++way.taken;
    way.bytes += bytes.size();
    world_.changed.notify_all();
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    world_.changed.wait(lock, [&] { return aborted_ || world_.unequal || condition(); });
    throw_if_aborted();
    if (world_.unequal) throw Error("a peer receives another size");
  }
  void throw_if_aborted() const {
    if (aborted_) throw PeerFailed("the exchange was aborted");
  }

  World& world_;
  const int process_;
  bool aborted_ = false;
};

MemoryExchange::MemoryExchange(int processes) : world_(std::make_unique<World>()) {
  world_->processes = processes;
  const auto n = static_cast<std::size_t>(processes);
  world_->ways.resize(n * n);
  for (int p = 0; p < processes; ++p)
    ends_.push_back(std::make_unique<End>(*world_, p));
}
MemoryExchange::~MemoryExchange() = default;

ProcessExchange& MemoryExchange::end(int process) {
  return *ends_[static_cast<std::size_t>(process)];
}
std::size_t MemoryExchange::sent(int from, int to) const { return world_->way(from, to).bytes; }

}  // namespace muo::test
