#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/attention.h"

// Chooses the kernels with which a device computes attention, separately for each direction. The
// choice is a pure function of the problem and of the library's support for it. Any forward kernel
// can be combined with any backward kernel, because all use the same out and lse
// (kernels/attention.h).
namespace muo {

enum class AttentionDirection : std::uint8_t { kForward, kBackward };

struct AttentionChoice {
  enum class Kernels : std::uint8_t { kLibrary, kWarpgroups, kTensorCores, kPortable };
  Kernels kernels = Kernels::kPortable;
  std::int64_t workspace = 0;  // fp32 elements; enough for the project's own kernels too
  std::string why;             // may be empty

  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

// A library's support for one direction of a problem.
struct LibraryAttention {
  std::string why_not;         // empty if the library has a kernel, else one line
  std::int64_t workspace = 0;  // bytes of scratch
};
// Called at most once, and only if the choice depends on the answer, because it may take a second.
using LibraryQuery = std::function<LibraryAttention()>;

// Whether the tensors of a call begin at multiples of 16 bytes, as planned memory does.
struct AttentionAlignment {
  bool tensors = true, workspace = true;
};

// The project's tensor-core kernels need bf16, aligned tensors, a positive scale and a head size
// that is a multiple of 8 up to this one; its fp32 kernels support every problem. On GPUs with
// warpgroup products (compute capability 9.0) the gradient kernels use those.
inline constexpr std::int64_t kMaxTensorCoreHead = 128;
// Larger heads use tiles of 128, for which warpgroup kernels were measured to be faster than cuDNN.
inline constexpr std::int64_t kNarrowHead = 64;
// cuDNN's deterministic gradients store a t x t matrix for each head. Above this size, kAuto uses
// cuDNN only if the project's tensor-core kernels do not support the problem.
inline constexpr std::int64_t kMaxLibraryBytes = std::int64_t{1} << 30;

// Chooses according to size.method, without reading the environment; `warpgroups` says
// whether the GPU has warpgroup products. Throws InputError if size.method demands cuDNN and
// cuDNN has no kernel.
AttentionChoice choose_attention(const AttentionSize& size, AttentionDirection direction,
                                 const LibraryQuery& library, const AttentionAlignment& alignment,
                                 bool warpgroups);

// Whether these gradient kernels, for heads of size h, also apply AttentionBackwardArgs::rotary.
// This requires that their tiles have whole head rows, with both halves in one thread.
constexpr bool fuses_rotary(AttentionChoice::Kernels kernels, std::int64_t h) {
  return kernels == AttentionChoice::Kernels::kWarpgroups && h == kMaxTensorCoreHead;
}

// Describes the choices of both directions in one line, or that of forward alone if
// `backward` is null.
std::string describe(const AttentionChoice& forward, const AttentionChoice* backward);

// The size of a call, from its arguments.
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

// Checked at each call: 16-byte vector accesses need alignment, but views may begin anywhere.
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

// Chooses the kernels for a problem with aligned tensors on the current device.
struct AttentionBackend {
  AttentionChoice (*choose)(const AttentionSize& size, AttentionDirection direction) = nullptr;
};
// Called by a backend's library when it is loaded. Returns the backend registered before.
AttentionBackend register_attention_backend(const AttentionBackend& backend);

}  // namespace muo
