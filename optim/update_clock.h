#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/phase_clock.h"

namespace muo::optim {

// Phases of an update's time, on the stream that does the work, each named after the
// work or the wait.
enum class UpdatePhase : std::uint8_t {
  kElsewhere,      // not part of the update
  kElementwise,    // momentum, normalisation, scaling, commit, AdamW
  kGemm,           // Newton-Schulz
  kCommunication,  // exposed waits for gradients, inputs, updates and weights
};
inline constexpr std::array<std::string_view, 4> kUpdatePhases = {"elsewhere", "update", "gemm",
                                                                  "communication"};
// Phases of comm.
enum class CommPhase : std::uint8_t { kIdle, kBusy };

// Two clocks that ShardedStep advances when its streams change phase. If they are absent,
// mark_phase() does nothing.
struct UpdateClock {
  Tensor update = {};  // PhaseClock by UpdatePhase
  Tensor comm = {};    // PhaseClock by CommPhase

  void mark_phase(Stream& stream, UpdatePhase phase) const {
    if (update) muo::mark_phase(stream, {.clock = update, .phase = static_cast<int>(phase)});
  }
  void mark_phase(Stream& stream, CommPhase phase) const {
    if (comm) muo::mark_phase(stream, {.clock = comm, .phase = static_cast<int>(phase)});
  }
  // Counts work that `call` enqueues on comm as busy.
  template <class Call>
  void busy(Stream& stream, const Call& call) const {
    mark_phase(stream, CommPhase::kIdle);
    call();
    mark_phase(stream, CommPhase::kBusy);
  }
};

}  // namespace muo::optim
