#pragma once

// Synchronisation and data movement of the ranks of the stand-in for NCCL, run by their streams.

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

// This process' view of the ranks of one unique id, in all processes. As with NCCL, the end of
// another process is not detected: ranks that wait for it do so until this process aborts its own
// communicators.
class World {
 public:
  explicit World(std::unique_ptr<SharedBoard> board) : board_(std::move(board)) {}

  // Called for rank `rank` of `size`; returns when all ranks have joined. kRemoteError if aborted.
  Result join(int size, int rank);
  // A barrier of all ranks; false if aborted.
  bool arrive();
  void abort();
  // Waits until aborted and returns false; for ranks that need a process that is gone.
  bool wait_for_abort();
  [[nodiscard]] bool mispaired() const { return board().mispaired; }
  [[nodiscard]] int size() const { return board().size; }

  // Runs the work of one of NCCL's kernels on a rank. Returns early if the world is aborted.
  void run(int rank, const std::vector<Work>& group);

 private:
  using Lock = std::unique_lock<SharedMutex>;

  [[nodiscard]] Board& board() const { return **board_; }
  void changed();  // under the lock
  // Waits until ready(), which is called under the lock; false if aborted.
  template <class Ready>
  bool wait(Lock& lock, const Ready& ready);
  bool arrive(Lock& lock);

  // Bytes of the rank's memory: in place if the rank is in this process, else a copy. Null if they
  // cannot be read, as its process is gone.
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
