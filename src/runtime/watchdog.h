#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/rank_progress.h"

namespace muo {

// Longest time without a heartbeat of any rank: ranks that wait for a stuck one are silent too, and
// one that is merely ahead soon waits. See docs/failures.md.
struct Timeouts {
  using Time = std::chrono::milliseconds;
  static constexpr Time kLong = std::chrono::minutes(10);

  // Set by the user, and valid in all states; 0: no limit.
  std::optional<Time> requested = {};
  // Limit during steps, for devices and for the ranks' own work; at least four times the longest
  // wait for a device so far. Starting up and file accesses have kLong.
  Time in_steps = kLong;

  [[nodiscard]] bool endless() const { return requested == Time::zero(); }
  // The longest limit in any state.
  [[nodiscard]] Time longest() const { return requested.value_or(kLong); }
};

// The rank that is stuck, and a description.
struct Stuck {
  int rank = -1;
  std::int64_t step = -1;
  std::string what;
};

// Called with the time for which all local ranks have only waited for peers; returns the least such
// time of all other processes. Empty: there are no other processes.
using IdleElsewhere = std::function<Timeouts::Time(Timeouts::Time here)>;

// Detects stuck ranks; without clock and thread, so that it can be tested.
class StuckDetector {
 public:
  StuckDetector(std::size_t ranks, const Timeouts& timeouts, IdleElsewhere idle_elsewhere = {})
      : timeouts_(timeouts),
        idle_elsewhere_(std::move(idle_elsewhere)),
        ranks_(ranks),
        silence_(ranks) {}
  // To be called at intervals much shorter than the timeouts: `elapsed` is the time since the last
  // call, `now` the state of the ranks.
  [[nodiscard]] std::optional<Stuck> after(Timeouts::Time elapsed,
                                           std::span<const RankProgress::View> now);

 private:
  [[nodiscard]] Timeouts::Time limit() const;
  [[nodiscard]] Stuck find_culprit(Timeouts::Time silence) const;

  const Timeouts timeouts_;
  const IdleElsewhere idle_elsewhere_;
  std::vector<RankProgress::View> ranks_;
  std::vector<Timeouts::Time> silence_;  // by rank
  Timeouts::Time longest_wait_{0};       // of completed waits for a device
};

struct WatchOptions {
  std::optional<Timeouts::Time> stuck_after = {};  // see Timeouts::requested
  // Time for failing ranks to return; after that the program exits without them.
  Timeouts::Time grace = std::chrono::seconds(5);
  // Called before such an exit, to save what must not be lost. It may hang, for a while.
  std::function<void()> before_exit = {};
};

// Watches the threads of ranks. A stuck rank is treated as a failure: it is reported, and the
// others are released. If threads of a failed group do not return within the grace period, the
// program exits: cause to stderr, `before_exit`, exit code. Time in which the process is suspended,
// by ^Z or by a debugger, does not count, and nothing happens while a debugger is attached.
class Watchdog {
 public:
  // Cause of an exit.
  struct Cause {
    std::string text;
    int exit_code = 3;
  };
  struct Group {
    int first_rank = 0;
    std::function<void(const Stuck&)> fail;  // records the cause, unless there is one
    std::function<void()> release;           // releases waiting ranks; may hang
    std::function<Cause()> cause;
    IdleElsewhere idle_elsewhere = {};  // called often, and at both ends of scopes
  };
  Watchdog(std::span<const RankProgress> ranks, const Timeouts& timeouts, WatchOptions options,
           Group group);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A rank has failed: starts the grace period. From any thread.
  void group_failed() noexcept;

  // Marks that ranks' threads run until the scope's end.
  class Scope {
   public:
    explicit Scope(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.watch(true); }
    ~Scope() { watchdog_.watch(false); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Watchdog& watchdog_;
  };

 private:
  void watch(bool on) noexcept;
  void work();
  void tick(Timeouts::Time elapsed);
  void end_program() const;  // if a rank has not returned

  const std::span<const RankProgress> ranks_;
  const WatchOptions options_;
  const Group group_;
  StuckDetector detector_;
  std::vector<RankProgress::View> views_;
  const Timeouts::Time period_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool watching_ = false, failed_ = false, end_ = false;
  Timeouts::Time unwinding_{0};  // time since the group failed, in this scope
  std::thread releaser_;
  std::thread thread_;  // none: endless timeouts
};

}  // namespace muo
