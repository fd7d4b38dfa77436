#pragma once

// How the ranks of the stand-in for NCCL meet and move values, once their streams come to it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/nccl_library.h"
#include "stand_ins/nccl_board.h"

namespace muo::nccl {

std::int64_t size_of_type(Type type);

// Where this process' ranks of one unique id meet each other, and those of other processes. As with
// NCCL, nobody notices that another process is gone: who waits for it does so until this process
// aborts its own communicators.
class World {
 public:
  explicit World(std::unique_ptr<SharedBoard> board) : board_(std::move(board)) {}

  // Rank `rank` of `size` is here; returns when all are. Remote error: aborted.
  Result join(int size, int rank);
  // False once aborted.
  bool arrive();
  void abort();
  // Until aborted; false. For who needs a process that is gone.
  bool wait_in_vain();
  [[nodiscard]] bool mispaired() const { return board().mispaired; }
  [[nodiscard]] int size() const { return board().size; }

  // What NCCL makes one kernel of, on its rank. Ends early if the world is aborted.
  void run(int rank, const std::vector<Work>& group);

 private:
  using Lock = std::unique_lock<SharedMutex>;

  [[nodiscard]] Board& board() const { return **board_; }
  void changed();  // under the lock
  // Until ready(), which is asked under the lock; false once aborted.
  template <class Ready>
  bool wait(Lock& lock, const Ready& ready);
  bool arrive(Lock& lock);

  // Bytes of the rank's memory: in place if it is this process', else a copy. Null: they cannot be
  // read, as its process is gone.
  const std::byte* read(int rank, const std::byte* from, std::int64_t bytes,
                        std::vector<std::byte>& copy) const;
  bool ring_sum(const Work& mine, std::int64_t first, std::int64_t n, int segment,
                std::byte* out) const;
  bool move(int rank, const Work& mine, std::vector<std::byte>& result) const;
  bool run_collective(int rank, const Work& mine);
  bool send(int rank, const Work& mine);
  bool receive(int rank, const Work& mine);

  const std::unique_ptr<SharedBoard> board_;
  std::atomic<bool> aborted_ = false;  // by this process
};

}  // namespace muo::nccl
