#include "runtime/watchdog.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/threads.h"

namespace muo {
namespace {

using Time = Timeouts::Time;
using View = RankProgress::View;

bool waits_for_peers(const View& rank) {
  return rank.activity == Activity::kPeers || rank.activity == Activity::kNone;
}

const char* text_of(Activity activity) {
  switch (activity) {
    case Activity::kWork:
      return "in calls of its own";
    case Activity::kDevice:
      return "waiting for its device";
    case Activity::kFiles:
      return "waiting for files";
    case Activity::kPeers:
      return "waiting for other ranks";
    case Activity::kNone:
      break;
  }
  return "without a thread";
}

std::string seconds_text(Time time) {
  const std::int64_t tenths = time.count() / 100;
  return concat(0.1 * static_cast<double>(tenths));
}

bool debugger_attached() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "TracerPid:") {
      long tracer = 0;
      return status >> tracer && tracer != 0;
    }
  return false;
}

}  // namespace

std::optional<Stuck> StuckDetector::after(Time elapsed, std::span<const View> now) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (now[r].heartbeats == ranks_[r].heartbeats) {
      silence_[r] += elapsed;
    } else {
      if (ranks_[r].activity == Activity::kDevice)
        longest_wait_ = std::max(longest_wait_, silence_[r]);
      silence_[r] = Time::zero();
    }
    ranks_[r] = now[r];
  }
  Time silence = *std::ranges::min_element(silence_);
  if (idle_elsewhere_) {
    const bool idle = std::ranges::all_of(ranks_, waits_for_peers);
    const Time elsewhere = idle_elsewhere_(idle ? silence : Time::zero());
    if (idle) silence = std::min(silence, elsewhere);
  }
  if (timeouts_.endless() || silence <= limit()) return std::nullopt;
  return find_culprit(silence);
}

// The limit of the rank that may take longest, as the others may wait for it.
Time StuckDetector::limit() const {
  if (timeouts_.requested) return *timeouts_.requested;
  const bool in_steps = std::ranges::all_of(ranks_, [](const View& rank) {
    return waits_for_peers(rank) || (rank.step >= 0 && rank.activity != Activity::kFiles);
  });
  const bool deadlock = std::ranges::all_of(ranks_, waits_for_peers);
  if (!in_steps || deadlock) return Timeouts::kLong;
  return std::min(std::max(timeouts_.in_steps, 4 * longest_wait_), Timeouts::kLong);
}

// The most likely cause of the hang. Ranks that wait for peers are unlikely, those that wait for
// their device less likely than others, as that may wait for a peer's device; among equals, the
// rank that is farthest behind.
Stuck StuckDetector::find_culprit(Time silence) const {
  const auto rank_key = [](const View& rank) {
    return std::tuple(waits_for_peers(rank), rank.activity == Activity::kDevice, rank.step,
                      rank.phases, rank.heartbeats_in_phase);
  };
  const auto culprit = std::ranges::min_element(ranks_, {}, rank_key);
  std::string what = concat("no heartbeat for ", seconds_text(silence), " s while in ",
                            culprit->phase, ", ", text_of(culprit->activity));
  const auto equal = std::ranges::count_if(
      ranks_, [&](const View& rank) { return rank_key(rank) == rank_key(*culprit); });
  if (equal > 1) what += concat(", as ", equal - 1, equal == 2 ? " other" : " others");
  what += "; if it is only slow, give a larger --stuck-after SECONDS (0: never; docs/failures.md)";
  return {.rank = static_cast<int>(culprit - ranks_.begin()),
          .step = culprit->step,
          .what = std::move(what)};
}

Watchdog::Watchdog(std::span<const RankProgress> ranks, const Timeouts& timeouts,
                   WatchOptions options, Group group)
    : ranks_(ranks),
      options_(std::move(options)),
      group_(std::move(group)),
      detector_(ranks.size(), timeouts, group_.idle_elsewhere),
      views_(ranks.size()),
      period_(std::clamp<Time>(
          std::min(timeouts.requested.value_or(timeouts.in_steps), options_.grace) / 8,
          std::chrono::milliseconds(5), std::chrono::milliseconds(500))) {
  if (timeouts.endless()) return;
  thread_ = start_thread([this] { work(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (releaser_.joinable()) releaser_.join();
}

void Watchdog::group_failed() noexcept {
  const std::lock_guard lock(mutex_);
  failed_ = true;
}

void Watchdog::watch(bool on) noexcept {
  const std::lock_guard lock(mutex_);
  watching_ = on;
  unwinding_ = Time::zero();
  if (group_.idle_elsewhere) static_cast<void>(group_.idle_elsewhere(Time::zero()));
  changed_.notify_all();
}

void Watchdog::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return watching_ || end_; });
    if (end_) return;
    const auto start = std::chrono::steady_clock::now();
    changed_.wait_for(lock, period_, [&] { return !watching_ || end_; });
    if (!watching_ || end_) continue;
    const auto slept = std::chrono::duration_cast<Time>(std::chrono::steady_clock::now() - start);
    tick(std::min(slept, 2 * period_));  // more: the process was suspended
  }
}

void Watchdog::tick(Time elapsed) {
  if (failed_) {
    unwinding_ += elapsed;
    if (unwinding_ > options_.grace && !debugger_attached()) end_program();
    return;
  }
  std::ranges::transform(ranks_, views_.begin(), &RankProgress::view);
  const std::optional<Stuck> stuck = detector_.after(elapsed, views_);
  if (!stuck || debugger_attached()) return;
  failed_ = true;
  group_.fail({group_.first_rank + stuck->rank, stuck->step, stuck->what});
  try {
    releaser_ = start_thread(group_.release);
  } catch (const ThreadRefused&) {
    group_.release();
  }
}

void Watchdog::end_program() const {
  std::string late;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].view().activity != Activity::kNone)
      late += concat(late.empty() ? "" : ", ", group_.first_rank + static_cast<int>(r));
  if (late.empty()) return;
  const Cause cause = group_.cause();
  // Ends the program even if something below hangs.
  try {
    start_thread([code = cause.exit_code] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      std::_Exit(code);
    }).detach();
  } catch (const ThreadRefused&) {  // without the thread, a hang below is not detected
  }
  std::string text = concat("muograph: error: ", cause.text, "; rank ", late,
                            " did not return, so the program exits without it\n");
  std::replace(text.begin(), text.end() - 1, '\n', ' ');
  static_cast<void>(std::fputs(text.c_str(), stderr));
  if (options_.before_exit) options_.before_exit();
  static_cast<void>(std::fflush(stdout));
  std::_Exit(cause.exit_code);
}

}  // namespace muo
