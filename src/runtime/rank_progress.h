#pragma once

#include <atomic>
#include <cstdint>

namespace muo {

// What keeps a rank's thread; how long it may then send no heartbeat is the watchdog's to say.
enum class Activity : std::uint8_t {
  kWork,    // its own, or calls that enqueue
  kDevice,  // waits for its device
  kFiles,   // reads or writes files
  kPeers,   // waits for other ranks' threads
  kNone,    // there is no thread
};

// Where a rank is, told by its thread and read by the watchdog: a few relaxed stores, no lock. To
// tell is also how a rank learns that the group has failed while it was busy.
class RankProgress {
 public:
  // Of the rank whose thread calls; null on any other thread.
  [[nodiscard]] static RankProgress* current() noexcept;
  // A heartbeat of the calling thread's rank, if it is one's. Throws PeerFailed after stop(),
  // Interrupted after interrupt(true).
  static void alive();
  // The same without being a heartbeat.
  static void check();

  // The two throw as alive() does. `phase` is a literal that reads well after "while in":
  // "the evaluation". Until the first step the rank starts up.
  void begin_step(std::int64_t step);
  void enter(const char* phase);
  // The group has failed. From any thread.
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  void interrupt(bool on) noexcept { interrupted_.store(on, std::memory_order_relaxed); }

  // The calling thread is the rank's, from here to the scope's end; it is in no step yet.
  class Thread {
   public:
    Thread(RankProgress& rank, const char* phase) noexcept;
    ~Thread();
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
  };
  // What the calling thread does, from here to the scope's end. Begin and end are heartbeats.
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
    std::int64_t step = -1;  // -1: it starts up
    const char* phase = "";
    Activity activity = Activity::kNone;
    std::uint64_t signs = 0;  // of life, so far
    // How far it is in its step; ranks enter the same phases.
    std::int64_t phases = 0;
    std::uint64_t signs_in_phase = 0;
  };
  // Parts may be of different moments, unless the rank has been silent for a while.
  [[nodiscard]] View view() const noexcept;

 private:
  void sign() noexcept { signs_.fetch_add(1, std::memory_order_relaxed); }
  void throw_if_stopped() const;

  std::atomic<std::int64_t> step_ = -1;
  std::atomic<const char*> phase_ = "";
  std::atomic<Activity> activity_ = Activity::kNone;
  std::atomic<std::uint64_t> signs_ = 0;
  std::atomic<std::int64_t> phases_ = 0;
  std::atomic<std::uint64_t> signs_before_phase_ = 0;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace muo
