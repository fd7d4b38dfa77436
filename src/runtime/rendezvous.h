#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>

namespace muo {

// Thrown in the ranks that were waiting for a rank that failed. A consequence: it never displaces
// the root cause.
class PeerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A barrier that can be broken: unlike std::barrier, no rank waits for a dead peer.
class Rendezvous {
 public:
  explicit Rendezvous(int world) : world_(world) {}

  // Returns when all ranks have arrived; throws PeerFailed once broken. `leader` runs once, in the
  // last rank to arrive, while the others wait; if it throws, the barrier breaks.
  void arrive(const std::function<void()>& leader = {});
  void break_all() noexcept;

 private:
  void throw_if_broken() const;

  const int world_;
  std::mutex mutex_;
  std::condition_variable condition_;
  int arrived_ = 0;
  std::uint64_t generation_ = 0;
  bool broken_ = false;
};

}  // namespace muo
