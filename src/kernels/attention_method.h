#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace muo {

// Which kernels compute attention on a device. The host has one way, and no choice.
enum class AttentionKernels : std::uint8_t {
  kAuto,      // what MUO_ATTENTION says, else cuDNN's where they can be had at affordable scratch
  kCudnn,     // cuDNN's; an InputError where they cannot be used
  kOwn,       // the project's: on tensor cores where these can be used, else as kPortable
  kPortable,  // the project's in fp32 arithmetic
};
// Names in that order: the values of --attention and of MUO_ATTENTION.
inline constexpr std::array<std::string_view, 4> kAttentionKernels = {"auto", "cudnn", "own",
                                                                      "portable"};

struct AttentionMethod {
  AttentionKernels kernels = AttentionKernels::kAuto;
  // Gradients have the same bits in every run. If not, cuDNN may add up those of queries in
  // whatever order blocks finish, which is faster and needs no t x t scratch.
  bool deterministic = true;
};

// Of a name; throws InputError that begins with `where`.
AttentionKernels attention_kernels(std::string_view name, std::string_view where);
// What the environment variable MUO_ATTENTION says, kAuto if nothing; throws InputError.
AttentionKernels attention_kernels_of_environment();

}  // namespace muo
