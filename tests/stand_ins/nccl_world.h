#pragma once

// How the ranks of the stand-in for NCCL meet and move values, once their streams come to it.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/nccl_library.h"

namespace muo::nccl {

std::int64_t size_of_type(Type type);

enum class Call : std::uint8_t {
  kReduce,
  kBroadcast,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kSend,
  kReceive
};

struct Work {
  Call call = Call::kAllReduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t count = 0;  // as NCCL's parameter
  Type type = Type::kFloat32;
  int peer = -1;  // or root
};

// Where the ranks of one unique id meet.
class World {
 public:
  explicit World(int size) : posts(static_cast<std::size_t>(size)) {}

  // False once aborted.
  bool arrive() {
    std::unique_lock lock(mutex);
    if (aborted) return false;
    const std::uint64_t mine = generation;
    if (++arrived == size()) {
      arrived = 0;
      ++generation;
      changed.notify_all();
      return true;
    }
    changed.wait(lock, [&] { return generation != mine || aborted; });
    return generation != mine;
  }
  void abort() {
    const std::lock_guard lock(mutex);
    aborted = true;
    changed.notify_all();
  }
  [[nodiscard]] int size() const { return static_cast<int>(posts.size()); }

  struct Message {
    const std::byte* data;
    std::int64_t bytes;
    bool taken = false;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Work> posts;  // by rank, between two arrivals
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;  // (from, to)
  std::atomic<bool> mispaired = false;
  bool aborted = false;

 private:
  int arrived = 0;
  std::uint64_t generation = 0;
};

// What NCCL makes one kernel of, on its rank. Ends early if the world is aborted.
void run(World& world, int rank, const std::vector<Work>& group);

}  // namespace muo::nccl
