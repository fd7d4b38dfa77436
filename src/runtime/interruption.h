#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

namespace muo {

class RankProgress;
class Rendezvous;

// Thrown in every rank whose work was given up; nothing that it has written is to be used.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// Work that all ranks of a group give up, or none: it is open from open() to close(), and a
// request() in between ends it. On the host that is between two nodes of a replay, or in a wait for
// peers; elsewhere where a rank calls check() or close(), as a collective that some ranks have
// launched needs all.
class Interruption {
 public:
  // Both must outlive it.
  Interruption(Rendezvous& meeting, std::span<RankProgress> ranks, bool on_host)
      : meeting_(meeting), ranks_(ranks), on_host_(on_host) {}

  // From any thread.
  void request() noexcept;
  // By one rank while the others wait for it: the leader of a barrier.
  void open() { state_ = State::kOpen; }
  // Before what cannot be undone, on every rank: throws Interrupted, on all or on none.
  void close();
  // Throws Interrupted if the work is given up.
  void check() const;
  // After Interrupted, on every rank: waits for all, and they may meet again. `leader` runs once.
  void recover(const std::function<void()>& leader = {});

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kGivenUp };

  Rendezvous& meeting_;
  const std::span<RankProgress> ranks_;
  const bool on_host_;
  std::atomic<State> state_ = State::kClosed;
};

}  // namespace muo
