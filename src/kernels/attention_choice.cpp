#include "kernels/attention_choice.h"

#include <algorithm>

#include "base/check.h"

namespace muo {
namespace {

using Kernels = AttentionChoice::Kernels;

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || a == b ? b : b.empty() ? a : concat(a, "; ", b);
}

std::string why_no_tensor_cores(const AttentionSize& size, bool aligned) {
  if (size.dtype != DType::kBF16) return concat("tensors are ", name_of(size.dtype));
  if (size.h % 8 != 0 || size.h > kMaxTensorCoreHead)
    return concat("head size ", size.h, " is not a multiple of 8 up to ", kMaxTensorCoreHead);
  if (!(size.scale > 0.0F)) return concat("scale ", size.scale, " is not above 0");
  if (!aligned) return "a tensor does not begin at a multiple of 16 bytes";
  return {};
}

// Chooses among the project's own kernels. Their backward pass stores the dot product of dout and
// out for each query; the warpgroup kernels store a few numbers per query (QueryNumbers,
// kernels/cuda/warpgroup_backward.cu), in tiles of 64 queries.
AttentionChoice own_choice(const AttentionSize& size, AttentionDirection direction,
                           const AttentionAlignment& alignment, bool warpgroups) {
  const bool backward = direction == AttentionDirection::kBackward;
  AttentionChoice own{.workspace = backward ? size.b * size.t * size.heads : 0,
                      .why = why_no_tensor_cores(size, alignment.tensors)};
  if (!own.why.empty()) return own;
  own.kernels = Kernels::kTensorCores;
  if (backward && warpgroups && alignment.workspace) {
    own.kernels = Kernels::kWarpgroups;
    own.workspace = size.b * size.heads * ((size.t + 63) / 64 * 64) * (size.documents ? 3 : 2);
  }
  return own;
}

bool on_tensor_cores(Kernels kernels) {
  return kernels == Kernels::kTensorCores || kernels == Kernels::kWarpgroups;
}

LibraryAttention query_library(const AttentionSize& size, const LibraryQuery& library,
                               const AttentionAlignment& alignment) {
  if (size.dtype != DType::kBF16)
    return {.why_not = concat("cuDNN does not support attention in ", name_of(size.dtype))};
  if (size.documents) return {.why_not = "cuDNN does not support attention within documents"};
  if (!alignment.tensors || !alignment.workspace)
    return {.why_not = "a tensor does not begin at a multiple of 16 bytes"};
  return library();
}

std::string scratch_text(const AttentionSize& size, std::int64_t bytes) {
  return concat(size.method.deterministic ? "deterministic gradients take " : "gradients take ",
                (bytes + (1 << 20) - 1) >> 20, " MiB of scratch");
}

std::string name_of(Kernels kernels) {
  switch (kernels) {
    case Kernels::kLibrary:
      return "cuDNN";
    case Kernels::kWarpgroups:
      return "own kernels on Hopper's tensor cores";
    case Kernels::kTensorCores:
      return "own kernels on tensor cores";
    case Kernels::kPortable:
      break;
  }
  return "own kernels in fp32";
}

std::string with_reason(const std::string& text, const std::string& why) {
  return why.empty() ? text : concat(text, " (", why, ")");
}

}  // namespace

AttentionChoice choose_attention(const AttentionSize& size, AttentionDirection direction,
                                 const LibraryQuery& library, const AttentionAlignment& alignment,
                                 bool warpgroups) {
  constexpr const char* kAsked = "as asked for";
  AttentionChoice own = own_choice(size, direction, alignment, warpgroups);
  switch (size.method.kernels) {
    case AttentionKernels::kPortable:
      own.kernels = Kernels::kPortable;
      own.why = kAsked;
      return own;
    case AttentionKernels::kOwn:
      own.why = joined(own.why, kAsked);
      return own;
    case AttentionKernels::kAuto:
      if (size.dtype != DType::kBF16) return own;  // `why` already gives the reason
      if (own.kernels == Kernels::kWarpgroups && size.h > kNarrowHead) return own;
      break;
    case AttentionKernels::kCudnn:
      break;
  }
  const bool must = size.method.kernels == AttentionKernels::kCudnn;
  const LibraryAttention answer = query_library(size, library, alignment);
  if (!answer.why_not.empty()) {
    if (must)
      throw InputError(concat("attention cudnn (--attention, MUO_ATTENTION): ", answer.why_not,
                              ": give auto, own or portable"));
    own.why = joined(own.why, answer.why_not);
    return own;
  }
  const bool backward = direction == AttentionDirection::kBackward;
  if (!must && answer.workspace > kMaxLibraryBytes && on_tensor_cores(own.kernels)) {
    own.why = concat("cuDNN's ",
                     backward ? scratch_text(size, answer.workspace)
                              : concat("scratch is ", answer.workspace >> 20, " MiB"),
                     ", more than ", kMaxLibraryBytes >> 20);
    return own;
  }
  constexpr auto kElement = static_cast<std::int64_t>(sizeof(float));
  return {.kernels = Kernels::kLibrary,
          .workspace = std::max(own.workspace, (answer.workspace + kElement - 1) / kElement),
          .why = backward ? scratch_text(size, answer.workspace) : std::string{}};
}

std::string describe(const AttentionChoice& forward, const AttentionChoice* backward) {
  const std::string name = name_of(forward.kernels);
  if (backward == nullptr) return with_reason(name, forward.why);
  if (backward->kernels == forward.kernels)
    return with_reason(name, joined(forward.why, backward->why));
  return concat(with_reason(name, forward.why), ", gradients by ",
                with_reason(name_of(backward->kernels), backward->why));
}

}  // namespace muo
