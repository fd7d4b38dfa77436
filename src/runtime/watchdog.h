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

// How long no heartbeat may come: all ranks together, as those that wait for a stuck one
// are silent too, and one that is merely ahead soon waits. docs/failures.md.
struct Timeouts {
  using Time = std::chrono::milliseconds;
  static constexpr Time kLong = std::chrono::minutes(10);

  // What the user asked for holds whatever the ranks do; 0: for ever.
  std::optional<Time> asked = {};
  // Once the steps have begun, with devices and with work of the ranks' own; at least four times
  // what a wait for a device has taken so far. Starting up, and files, have kLong.
  Time in_steps = kLong;

  [[nodiscard]] bool endless() const { return asked == Time::zero(); }
  // The longest that may ever pass.
  [[nodiscard]] Time most() const { return asked.value_or(kLong); }
};

// The rank that is to blame, and why.
struct Stuck {
  int rank = -1;
  std::int64_t step = -1;
  std::string what;
};

// Of ranks that all wait for peers, which may be other processes': told for how long they have,
// says for how long those of the other processes have. Empty: there are none.
using IdleElsewhere = std::function<Timeouts::Time(Timeouts::Time here)>;

// The watchdog's judgement, without its clock and thread.
class StuckDetector {
 public:
  StuckDetector(std::size_t ranks, const Timeouts& timeouts, IdleElsewhere idle_elsewhere = {})
      : timeouts_(timeouts),
        idle_elsewhere_(std::move(idle_elsewhere)),
        ranks_(ranks),
        silence_(ranks) {}
  // What the ranks do now, `elapsed` after the last call. Call often, compared with the timeouts.
  [[nodiscard]] std::optional<Stuck> after(Timeouts::Time elapsed,
                                           std::span<const RankProgress::View> now);

 private:
  [[nodiscard]] Timeouts::Time limit() const;
  [[nodiscard]] Stuck blame(Timeouts::Time silence) const;

  const Timeouts timeouts_;
  const IdleElsewhere idle_elsewhere_;
  std::vector<RankProgress::View> ranks_;
  std::vector<Timeouts::Time> silence_;  // of each rank
  Timeouts::Time longest_wait_{0};       // for a device that came to its end
};

struct WatchOptions {
  std::optional<Timeouts::Time> stuck_after = {};  // see Timeouts::asked
  // What failing ranks have for coming back; then the program ends without them.
  Timeouts::Time grace = std::chrono::seconds(5);
  // What has to be saved before such an end. It may hang, for a while.
  std::function<void()> before_exit = {};
};

// Watches over threads of ranks. A rank that is stuck is a failure like any other: it is reported,
// and the others are released. A failed group whose threads do not come back within the grace ends
// the program: its cause on stderr, `before_exit`, the exit code. Time in which the process is
// stopped, by ^Z or by a debugger, does not count, and nothing is done while one is attached.
class Watchdog {
 public:
  // What ends the program.
  struct Cause {
    std::string text;
    int exit_code = 3;
  };
  struct Group {
    int first_rank = 0;
    std::function<void(const Stuck&)> fail;  // records the cause, unless there is one
    std::function<void()> release;           // lets go whoever waits; it may hang
    std::function<Cause()> cause;
    IdleElsewhere idle_elsewhere = {};  // called often, and where scopes begin and end
  };
  Watchdog(std::span<const RankProgress> ranks, const Timeouts& timeouts, WatchOptions options,
           Group group);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A rank has failed: the grace begins. From any thread.
  void group_failed() noexcept;

  // Ranks' threads run from here to the scope's end.
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
  void end_program() const;  // if a rank has not come back

  const std::span<const RankProgress> ranks_;
  const WatchOptions options_;
  const Group group_;
  StuckDetector detector_;
  std::vector<RankProgress::View> views_;
  const Timeouts::Time period_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool watching_ = false, failed_ = false, end_ = false;
  Timeouts::Time unwinding_{0};  // of the failed group, in this scope
  std::thread releaser_;
  std::thread thread_;  // none: endless timeouts
};

}  // namespace muo
