#include "runtime/rendezvous.h"

#include <exception>
#include <utility>

#include "base/check.h"
#include "runtime/interruption.h"
#include "runtime/rank_progress.h"

namespace muo {

void Rendezvous::arrive(const std::function<void()>& leader, std::string_view site) {
  std::unique_lock lock(mutex_);
  throw_if_released();
  if (left_ > 0)
    break_with(concat("a rank waits in a ", site, ", but another has already returned"));
  if (arrived_ == 0) site_ = site;
  if (site != site_) break_with(concat("ranks wait in a ", site_, " and in a ", site));
  throw_if_broken();
  if (++arrived_ == world_) return lead(lock, leader);
  const std::uint64_t mine = generation_;
  const RankProgress::Scope waiting(Activity::kPeers);
  condition_.wait(lock,
                  [&] { return generation_ != mine || ((broken_ || interrupted_) && !leading_); });
  // A barrier that all ranks reached is complete, even if a peer failed right after it.
  if (generation_ == mine) throw_if_released();
}

// The leader runs without the lock, because it may take a long time, or hang until another thread
// breaks the barrier. Even then the other ranks wait for it, because it may use their data.
void Rendezvous::lead(std::unique_lock<std::mutex>& lock, const std::function<void()>& leader) {
  std::exception_ptr failure;
  if (leader) {
    leading_ = true;
    lock.unlock();
    try {
      leader();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    leading_ = false;
    broken_ = broken_ || failure;
  }
  condition_.notify_all();
  if (failure) std::rethrow_exception(failure);
  throw_if_broken();
  arrived_ = 0;
  ++generation_;
}

void Rendezvous::interrupt(const std::function<bool()>& begin) noexcept {
  const std::lock_guard lock(mutex_);
  if (!begin()) return;
  interrupted_ = true;
  condition_.notify_all();
}

void Rendezvous::recover(const std::function<void()>& leader) {
  std::unique_lock lock(mutex_);
  throw_if_broken();
  if (++recovering_ == world_) {
    leader();
    interrupted_ = false;
    recovering_ = arrived_ = 0;
    ++generation_;
    return condition_.notify_all();
  }
  const std::uint64_t mine = generation_;
  const RankProgress::Scope waiting(Activity::kPeers);
  condition_.wait(lock, [&] { return generation_ != mine || broken_; });
  if (generation_ == mine) throw_if_broken();
}

void Rendezvous::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (arrived_ > 0 && !broken_) {
    // An allocation failure here ends the program; without the wake-up it would hang.
    break_with(concat("a rank waits in a ", site_, ", but another has returned"));
  }
  left_ = left_ + 1 == world_ ? 0 : left_ + 1;
}

void Rendezvous::break_all() noexcept {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  condition_.notify_all();
}

void Rendezvous::break_with(std::string reason) {
  broken_ = true;
  reason_ = std::move(reason);
  condition_.notify_all();
}

void Rendezvous::throw_if_released() const {
  throw_if_broken();
  if (interrupted_) throw Interrupted();
}

void Rendezvous::throw_if_broken() const {
  if (!broken_) return;
  if (reason_.empty()) throw PeerFailed("a peer failed");
  throw Error(reason_);
}

}  // namespace muo
