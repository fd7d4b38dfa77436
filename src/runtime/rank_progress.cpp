#include "runtime/rank_progress.h"

#include "runtime/interruption.h"
#include "runtime/rendezvous.h"

namespace muo {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
thread_local RankProgress* current_rank = nullptr;

}  // namespace

RankProgress* RankProgress::current() noexcept { return current_rank; }

void RankProgress::alive() {
  if (current_rank != nullptr) current_rank->count_heartbeat();
  check();
}

void RankProgress::check() {
  if (current_rank != nullptr) current_rank->throw_if_stopped();
}

void RankProgress::begin_step(std::int64_t step) {
  step_.store(step, kRelaxed);
  phases_.store(0, kRelaxed);
  enter("the start of the step");
}

void RankProgress::enter(const char* phase) {
  phase_.store(phase, kRelaxed);
  phases_.fetch_add(1, kRelaxed);
  heartbeats_before_phase_.store(heartbeats_.load(kRelaxed), kRelaxed);
  count_heartbeat();
  throw_if_stopped();
}

void RankProgress::throw_if_stopped() const {
  if (stopped_.load(kRelaxed)) throw PeerFailed("a peer failed");
  if (interrupted_.load(kRelaxed)) throw Interrupted();
}

RankProgress::View RankProgress::view() const noexcept {
  View view{.step = step_.load(kRelaxed),
            .phase = phase_.load(kRelaxed),
            .activity = activity_.load(kRelaxed),
            .heartbeats = heartbeats_.load(kRelaxed),
            .phases = phases_.load(kRelaxed)};
  view.heartbeats_in_phase = view.heartbeats - heartbeats_before_phase_.load(kRelaxed);
  return view;
}

RankProgress::Thread::Thread(RankProgress& rank, const char* phase) noexcept {
  current_rank = &rank;
  rank.step_.store(-1, kRelaxed);
  rank.phase_.store(phase, kRelaxed);
  rank.phases_.store(0, kRelaxed);
  rank.activity_.store(Activity::kWork, kRelaxed);
  rank.count_heartbeat();
}

RankProgress::Thread::~Thread() {
  current_rank->activity_.store(Activity::kNone, kRelaxed);
  current_rank->count_heartbeat();
  current_rank = nullptr;
}

RankProgress::Scope::Scope(Activity activity) noexcept
    : rank_(current_rank),
      before_(rank_ != nullptr ? rank_->activity_.exchange(activity, kRelaxed) : activity) {
  if (rank_ != nullptr) rank_->count_heartbeat();
}

RankProgress::Scope::~Scope() {
  if (rank_ == nullptr) return;
  rank_->activity_.store(before_, kRelaxed);
  rank_->count_heartbeat();
}

}  // namespace muo
