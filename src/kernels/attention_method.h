#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_names.h"

namespace muo {

// Kernels that compute attention on a device. The host has a single implementation.
enum class AttentionKernels : std::uint8_t {
  kAuto,      // MUO_ATTENTION's value, else cuDNN's if available at affordable scratch
  kCudnn,     // cuDNN's; InputError if they cannot be used
  kOwn,       // the project's: on tensor cores if these can be used, else as kPortable
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

// The value of the environment variable MUO_ATTENTION, kAuto if unset. Throws InputError if it is
// unknown.
AttentionKernels attention_kernels_of_environment();

}  // namespace muo
