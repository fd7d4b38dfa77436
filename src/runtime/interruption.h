#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

namespace muo {

class RankProgress;
class Rendezvous;

// Thrown in every rank whose work was abandoned; its partial results must not be used.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// Work that is abandoned by all ranks of a group or by none: it is interruptible from open() to
// close(), and a request() in between abandons it. On the host it ends between two nodes of a
// replay, or in a wait for peers; elsewhere only when a rank calls check() or close(), as a
// collective that some ranks have launched needs all of them.
class Interruption {
 public:
  // Both must outlive this object.
  Interruption(Rendezvous& rendezvous, std::span<RankProgress> ranks, bool on_host)
      : rendezvous_(rendezvous), ranks_(ranks), on_host_(on_host) {}

  // From any thread.
  void request() noexcept;
  // Called by one rank while the others wait for it: the leader of a barrier.
  void open() { state_ = State::kOpen; }
  // Called by every rank before work that cannot be undone. Throws Interrupted on all ranks or on
  // none.
  void close();
  // Throws Interrupted if the work was abandoned.
  void check() const;
  // Called by every rank after Interrupted: waits for all, and makes the rendezvous usable again.
  // `leader` runs once.
  void recover(const std::function<void()>& leader = {});

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kGivenUp };

  Rendezvous& rendezvous_;
  const std::span<RankProgress> ranks_;
  const bool on_host_;
  std::atomic<State> state_ = State::kClosed;
};

}  // namespace muo
