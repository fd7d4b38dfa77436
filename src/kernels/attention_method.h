#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_names.h"

namespace muo {

// Kernels that compute attention on a device. The host has a single implementation.
enum class AttentionKernels : std::uint8_t {
  kAuto,      // the value of MUO_ATTENTION, else cuDNN's if available with affordable scratch
  kCudnn,     // cuDNN's; InputError if they cannot be used
  kOwn,       // the project's: on tensor cores if they support the problem, else as kPortable
  kPortable,  // the project's in fp32 arithmetic
};
// The values of --attention and of MUO_ATTENTION.
constexpr auto names_of(AttentionKernels) { return name_list("auto", "cudnn", "own", "portable"); }

struct AttentionMethod {
  AttentionKernels kernels = AttentionKernels::kAuto;
  // True: gradients have the same bits in every run. False: cuDNN may sum the gradients of queries
  // in the order in which blocks finish, which is faster and needs no t x t scratch.
  bool deterministic = true;
};

// Returns the value of the environment variable MUO_ATTENTION, or kAuto if it is unset. Throws
// InputError if the value is unknown.
AttentionKernels attention_kernels_of_environment();

}  // namespace muo
