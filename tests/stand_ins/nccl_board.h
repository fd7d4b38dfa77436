#pragma once

// The shared state of the ranks of one unique id in the stand-in for NCCL, in all their processes.

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
  std::int64_t count = 0;  // NCCL's parameter
  Type type = Type::kFloat32;
  int peer = -1;  // or root
};

// A mutex for threads of several processes. If its owner is killed, it becomes free: the guarded
// state is then useless, but ranks that wait for the dead one can still be aborted. There is no
// condition variable with it, as a killed waiter could block that for all others.
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

// Addresses are those of their rank's process. Guarded by `mutex`, except for atomics and for
// posts, which the ranks' barriers order.
struct Board {
  static constexpr std::size_t kMaxRanks = 32;
  static constexpr std::uint64_t kMaxMessages = 8;  // pending ones from a rank to another

  struct Message {
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  struct Mail {
    std::uint64_t sent = 0, taken = 0;
    Message messages[kMaxMessages] = {};  // number n at n % kMaxMessages
  };

  std::uint64_t number = 0;  // of the unique id
  SharedMutex mutex;
  std::atomic<std::uint32_t> changes = 0;  // a futex on which ranks wait
  std::atomic<bool> mispaired = false;
  int size = 0;                     // 0: no rank has joined
  pid_t processes[kMaxRanks] = {};  // by rank; 0: it has not joined
  int arrived = 0;
  std::uint64_t generation = 0;
  Work posts[kMaxRanks] = {};            // by rank, between two arrivals
  Mail mail[kMaxRanks][kMaxRanks] = {};  // [from][to]
};

// A board in anonymous memory, which is freed with the last process that maps it, however these
// end. Other processes open it through the maker's /proc, while the maker keeps the descriptor
// open.
class SharedBoard {
 public:
  // make() stores the board's address in `id`; open() opens that board, null if its maker is gone.
  static std::unique_ptr<SharedBoard> make(UniqueId& id);
  static std::unique_ptr<SharedBoard> open(const UniqueId& id);
  ~SharedBoard();
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  void close_descriptor();  // call it when all ranks have opened the board
  [[nodiscard]] Board& operator*() const { return *board_; }
  [[nodiscard]] Board* operator->() const { return board_; }

 private:
  SharedBoard(Board* board, int descriptor) : board_(board), descriptor_(descriptor) {}

  Board* board_;
  int descriptor_;  // -1: closed, or another process is the maker
};

// The number of a unique id.
std::uint64_t number_of(const UniqueId& id);

}  // namespace muo::nccl
