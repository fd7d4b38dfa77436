#include "runtime/rendezvous.h"

#include <utility>

#include "base/check.h"

namespace muo {

void Rendezvous::arrive(const std::function<void()>& leader, std::string_view site) {
  std::unique_lock lock(mutex_);
  throw_if_broken();
  if (left_ > 0) break_with(concat("waits in a ", site, ", but a rank has already returned"));
  if (arrived_ == 0) site_ = site;
  if (site != site_) break_with(concat("ranks wait in a ", site_, " and in a ", site));
  throw_if_broken();
  if (++arrived_ == world_) {
    if (leader) {
      try {
        leader();
      } catch (...) {
        broken_ = true;
        condition_.notify_all();
        throw;
      }
    }
    arrived_ = 0;
    ++generation_;
    condition_.notify_all();
    return;
  }
  const std::uint64_t mine = generation_;
  condition_.wait(lock, [&] { return generation_ != mine || broken_; });
  // A barrier that everyone reached is complete, even if a peer failed right after it.
  if (generation_ == mine) throw_if_broken();
}

void Rendezvous::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (arrived_ > 0 && !broken_) {
    // An allocation failure here ends the program, which is what a lost wake-up would need too.
    break_with(concat("waits in a ", site_, ", but a rank has returned"));
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

void Rendezvous::throw_if_broken() const {
  if (!broken_) return;
  if (reason_.empty()) throw PeerFailed("a peer failed");
  throw Error(reason_);
}

}  // namespace muo
