#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

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
  // last rank to arrive, while the others wait; if it throws, the barrier breaks. `leader` does not
  // use this object. `site` says what the rank waits in; if ranks meet in different sites, or one
  // has left, that is an Error on every rank that waits, never a hang.
  void arrive(const std::function<void()>& leader = {}, std::string_view site = "barrier");
  // If `begin`, which runs alone, says so: ranks that wait, or come, throw Interrupted until all
  // have called recover(), where they meet; its `leader` runs once, alone, in the last.
  void interrupt(const std::function<bool()>& begin) noexcept;
  void recover(const std::function<void()>& leader);
  // This rank's thread ends in good order and arrives no more. When all have left, all are back.
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
  bool leading_ = false;  // a leader runs
  std::string site_;      // of those who wait
  std::string reason_;    // empty: a peer failed
};

}  // namespace muo
