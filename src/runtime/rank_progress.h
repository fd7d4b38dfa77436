#pragma once

#include <atomic>
#include <cstdint>

namespace muo {

// Current activity of a rank's thread; the watchdog decides how long it may last without a
// heartbeat.
enum class Activity : std::uint8_t {
  kWork,    // works itself, or enqueues
  kDevice,  // waits for its device
  kFiles,   // reads or writes files
  kPeers,   // waits for other ranks' threads
  kNone,    // has no thread
};

// Progress of a rank, written by its thread and read by the watchdog: a few relaxed stores, no
// lock. Each update also checks for a failure of the group, so that a busy rank notices it.
class RankProgress {
 public:
  // Progress of the rank that the calling thread belongs to; null on any other thread.
  [[nodiscard]] static RankProgress* current() noexcept;
  // Heartbeat of the calling thread's rank, if it has one. Throws PeerFailed after stop(),
  // Interrupted after interrupt(true).
  static void alive();
  // Throws like alive(), but is no heartbeat.
  static void check();

  // Both are heartbeats and throw like alive(). `phase` is a literal that fits after "while in":
  // "the evaluation". Before the first step the rank is starting up.
  void begin_step(std::int64_t step);
  void enter(const char* phase);
  // Marks the group as failed. From any thread.
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  void interrupt(bool on) noexcept { interrupted_.store(on, std::memory_order_relaxed); }

  // Makes the calling thread the rank's, until the scope's end; it is in no step yet.
  class Thread {
   public:
    Thread(RankProgress& rank, const char* phase) noexcept;
    ~Thread();
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
  };
  // Activity of the calling thread until the scope's end. Both ends are heartbeats.
  class Scope {
   public:
    explicit Scope(Activity activity) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RankProgress* const rank_;
    const Activity before_;
  };

  struct View {
    std::int64_t step = -1;  // -1: it is starting up
    const char* phase = "";
    Activity activity = Activity::kNone;
    std::uint64_t heartbeats = 0;  // heartbeats so far
    // Progress within the step; all ranks enter the same phases.
    std::int64_t phases = 0;
    std::uint64_t heartbeats_in_phase = 0;
  };
  // Fields may be of different times, unless the rank has sent no heartbeat for a while.
  [[nodiscard]] View view() const noexcept;

 private:
  void count_heartbeat() noexcept { heartbeats_.fetch_add(1, std::memory_order_relaxed); }
  void throw_if_stopped() const;

  std::atomic<std::int64_t> step_ = -1;
  std::atomic<const char*> phase_ = "";
  std::atomic<Activity> activity_ = Activity::kNone;
  std::atomic<std::uint64_t> heartbeats_ = 0;
  std::atomic<std::int64_t> phases_ = 0;
  std::atomic<std::uint64_t> heartbeats_before_phase_ = 0;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace muo
