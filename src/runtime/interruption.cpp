#include "runtime/interruption.h"

#include "runtime/rank_progress.h"
#include "runtime/rendezvous.h"

namespace muo {

void Interruption::request() noexcept {
  rendezvous_.interrupt([this] {
    State open = State::kOpen;
    if (!state_.compare_exchange_strong(open, State::kGivenUp) || !on_host_) return false;
    for (RankProgress& rank : ranks_)
      rank.interrupt(true);
    return true;
  });
}

void Interruption::close() {
  State open = State::kOpen;
  if (!state_.compare_exchange_strong(open, State::kClosed) && open == State::kGivenUp)
    throw Interrupted();
}

void Interruption::check() const {
  if (state_ == State::kGivenUp) throw Interrupted();
}

void Interruption::recover(const std::function<void()>& leader) {
  rendezvous_.recover([&] {
    state_ = State::kClosed;
    for (RankProgress& rank : ranks_)
      rank.interrupt(false);
    if (leader) leader();
  });
}

}  // namespace muo
