#pragma once

// What the ranks of one unique id share in the stand-in for NCCL, whichever processes they are of.

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/cuda/nccl_library.h"

namespace muo::nccl {

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

// Of threads of several processes. Whoever is killed under it leaves it free: what it guards is
// then of no use, but those who wait for the dead can still be aborted. So there is no condition
// variable beside it, which a waiter that is killed may block for all others.
class SharedMutex {
 public:
  SharedMutex();
  ~SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;
  void lock();
  void unlock();

 private:
  pthread_mutex_t mutex_;
};

// Addresses are of their rank's process. Guarded by `mutex`, but for what is said to be atomic and
// for posts, which the ranks' meetings order.
struct Board {
  static constexpr std::size_t kMostRanks = 32;
  static constexpr std::uint64_t kMostMessages = 8;  // of a rank to another, until it takes them

  struct Message {
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  struct Mail {
    std::uint64_t sent = 0, taken = 0;
    Message messages[kMostMessages] = {};  // number n at n % kMostMessages
  };

  std::uint64_t number = 0;  // of the unique id
  SharedMutex mutex;
  std::atomic<std::uint32_t> changes = 0;  // for who waits
  std::atomic<bool> mispaired = false;
  int size = 0;                      // 0: no rank has come
  pid_t processes[kMostRanks] = {};  // by rank; 0: it has not come
  int arrived = 0;
  std::uint64_t generation = 0;
  Work posts[kMostRanks] = {};             // by rank, between two arrivals
  Mail mail[kMostRanks][kMostRanks] = {};  // [from][to]
};

// A board in memory without a name, which goes with the last process that has it, however these
// end: another process opens it by the maker's /proc, while the maker keeps its door open.
class SharedBoard {
 public:
  // As part of `id`; or the one that `id` was made for, null if its maker is gone.
  static std::unique_ptr<SharedBoard> make(UniqueId& id);
  static std::unique_ptr<SharedBoard> open(const UniqueId& id);
  ~SharedBoard();
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  void close_door();  // all have it
  [[nodiscard]] Board& operator*() const { return *board_; }
  [[nodiscard]] Board* operator->() const { return board_; }

 private:
  SharedBoard(Board* board, int door) : board_(board), door_(door) {}

  Board* board_;
  int door_;  // -1: closed, or another's
};

// The same for the same id.
std::uint64_t number_of(const UniqueId& id);

}  // namespace muo::nccl
