#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/attention.h"

// How a device computes attention: a decision for each direction, a pure function of the problem
// and of what a library says to it. Any forward goes with any backward, as all write and read the
// same out and lse (kernels/attention.h).
namespace muo {

enum class AttentionDirection : std::uint8_t { kForward, kBackward };

struct AttentionChoice {
  enum class Kernels : std::uint8_t { kLibrary, kWarpgroups, kTensorCores, kPortable };
  Kernels kernels = Kernels::kPortable;
  std::int64_t workspace = 0;  // elements (fp32); enough for the own kernels too
  std::string why;             // may be empty

  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

// What a library of attention kernels says to one direction of a problem.
struct LibraryAttention {
  std::string why_not;         // empty: it has a kernel; else one line
  std::int64_t workspace = 0;  // bytes of scratch
};
// Asked at most once, and only where the answer matters: it may cost a second.
using AskLibrary = std::function<LibraryAttention()>;

// Of a call's tensors: whether they begin at multiples of 16 bytes. Planned memory does.
struct AttentionAlignment {
  bool tensors = true, workspace = true;
};

// The own kernels on tensor cores are for bf16, head sizes that are multiples of 8 up to this,
// aligned tensors and a positive scale; those in fp32 arithmetic for everything. Where a GPU has
// products of warpgroups (compute capability 9.0), there are kernels of gradients by these.
inline constexpr std::int64_t kMostTensorCoreHead = 128;
// Heads above this are in tiles of 128, where warpgroups were measured to be faster than cuDNN.
inline constexpr std::int64_t kNarrowHead = 64;
// With deterministic gradients cuDNN stores a t x t matrix for each head. From here on the memory
// is worth more than the time, if the own kernels on tensor cores can do the work instead.
inline constexpr std::int64_t kMostLibraryBytes = std::int64_t{1} << 30;

// By size.method, whose kernels are not looked up in the environment here, for a GPU with or
// without products of warpgroups. Throws InputError if they must be cuDNN's and cannot.
AttentionChoice choose_attention(const AttentionSize& size, AttentionDirection direction,
                                 const AskLibrary& library, const AttentionAlignment& alignment,
                                 bool warpgroups);

// Whether kernels of gradients for heads of size h compute AttentionBackwardArgs::rotary, too:
// those whose tiles have whole head rows, both halves in one thread.
constexpr bool take_rotary(AttentionChoice::Kernels kernels, std::int64_t h) {
  return kernels == AttentionChoice::Kernels::kWarpgroups && h == kMostTensorCoreHead;
}

// One line: the choices of both directions, or of the forward one alone.
std::string describe(const AttentionChoice& forward, const AttentionChoice* backward);

// Of a call's arguments.
template <class Args>
AttentionSize attention_size_of(const Args& args) {
  const Shape& q = args.q.shape;
  return {.b = q[0],
          .t = q[1],
          .heads = q[2],
          .kv_heads = args.k.shape[2],
          .h = q[3],
          .window = args.window,
          .scale = args.scale,
          .dtype = args.q.dtype,
          .method = args.method,
          .documents = static_cast<bool>(args.starts)};
}

// Views may begin anywhere; vectors of 16 bytes may not.
template <class Args>
AttentionAlignment alignment_of(const Args& args) {
  const auto aligned = [](auto... tensors) {
    return ((reinterpret_cast<std::uintptr_t>(tensors.data) % 16 == 0) && ...);
  };
  bool gradients = true;
  if constexpr (requires { args.dout; })
    gradients = aligned(args.dq, args.dk, args.dv, args.dout, args.rotary.cos, args.rotary.sin);
  return {.tensors = gradients && aligned(args.out, args.q, args.k, args.v),
          .workspace = aligned(args.workspace)};
}

// A backend's library calls this when it is loaded: how it would compute a problem with aligned
// tensors on the current device. Returns the one before.
struct AttentionBackend {
  AttentionChoice (*choose)(const AttentionSize& size, AttentionDirection direction) = nullptr;
};
AttentionBackend register_attention_backend(const AttentionBackend& backend);

}  // namespace muo
