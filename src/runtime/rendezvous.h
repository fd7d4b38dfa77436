#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

namespace muo {

// Thrown in ranks that waited for a rank that failed. As a consequence, it never replaces the root
// cause.
class PeerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A barrier that can be aborted: unlike with std::barrier, no rank waits for a failed peer.
class Rendezvous {
 public:
  explicit Rendezvous(int world) : world_(world) {}

  // Returns when all ranks have arrived; throws PeerFailed once broken. `leader` runs once, in the
  // last rank to arrive, while the others wait; if it throws, the barrier breaks. `leader` must not
  // use this object. `site` names the call: if ranks wait at different sites, or one has left,
  // every waiting rank throws Error, instead of hanging.
  void arrive(const std::function<void()>& leader = {}, std::string_view site = "barrier");
  // `begin` runs under the lock. If it returns true, ranks that wait or arrive throw Interrupted,
  // until all have called recover(), which is a barrier; its `leader` runs once, in the last rank,
  // under the lock.
  void interrupt(const std::function<bool()>& begin) noexcept;
  void recover(const std::function<void()>& leader);
  // This rank's thread ends normally and will not arrive again. Once all have left, the object can
  // be used again.
  void leave() noexcept;
  void break_all() noexcept;

 private:
  void lead(std::unique_lock<std::mutex>& lock, const std::function<void()>& leader);
  void throw_if_broken() const;
  void throw_if_released() const;  // broken, or interrupted
  void break_with(std::string reason);

  const int world_;
  std::mutex mutex_;
  std::condition_variable condition_;
  int arrived_ = 0;
  int left_ = 0;
  std::uint64_t generation_ = 0;
  bool broken_ = false;
  bool interrupted_ = false;
  int recovering_ = 0;
  bool leading_ = false;  // a leader is running
  std::string site_;      // of the waiting ranks
  std::string reason_;    // empty: a peer failed
};

}  // namespace muo
