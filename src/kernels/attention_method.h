#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_names.h"

namespace muo {

// Which kernels compute attention on a device. The host has one way, and no choice.
enum class AttentionKernels : std::uint8_t {
  kAuto,      // what MUO_ATTENTION says, else cuDNN's where they can be had at affordable scratch
  kCudnn,     // cuDNN's; an InputError where they cannot be used
  kOwn,       // the project's: on tensor cores where these can be used, else as kPortable
  kPortable,  // the project's in fp32 arithmetic
};
// The values of --attention and of MUO_ATTENTION.
constexpr auto names_of(AttentionKernels) { return name_list("auto", "cudnn", "own", "portable"); }

struct AttentionMethod {
  AttentionKernels kernels = AttentionKernels::kAuto;
  // Gradients have the same bits in every run. If not, cuDNN may add up those of queries in
  // whatever order blocks finish, which is faster and needs no t x t scratch.
  bool deterministic = true;
};

// What the environment variable MUO_ATTENTION says, kAuto if nothing; throws InputError.
AttentionKernels attention_kernels_of_environment();

}  // namespace muo
