#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/phase_clock.h"

namespace muo::optim {

// Where the time of an update goes: phases of the stream that does the work, each named for what
// it does or waits for.
enum class UpdatePhase : std::uint8_t {
  kElsewhere,      // what is no part of the update
  kElementwise,    // momentum, normalisation, scaling, commit, AdamW
  kGemm,           // Newton-Schulz
  kCommunication,  // waiting for gradients, inputs, updates and weights on their way: exposed
};
inline constexpr std::array<std::string_view, 4> kUpdatePhases = {"elsewhere", "update", "gemm",
                                                                  "communication"};
// And of comm.
enum class CommPhase : std::uint8_t { kIdle, kBusy };

// Two clocks that ShardedStep reads where its streams change phase. Absent, a lap is nothing.
struct UpdateClock {
  Tensor update = {};  // PhaseClock by UpdatePhase
  Tensor comm = {};    // PhaseClock by CommPhase

  void lap(Stream& stream, UpdatePhase phase) const {
    if (update) muo::lap(stream, {.clock = update, .phase = static_cast<int>(phase)});
  }
  void lap(Stream& stream, CommPhase phase) const {
    if (comm) muo::lap(stream, {.clock = comm, .phase = static_cast<int>(phase)});
  }
  // What `call` enqueues on comm counts as busy.
  template <class Call>
  void busy(Stream& stream, const Call& call) const {
    lap(stream, CommPhase::kIdle);
    call();
    lap(stream, CommPhase::kBusy);
  }
};

}  // namespace muo::optim
