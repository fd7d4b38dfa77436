#include <type_traits>

#include "kernels/attention_choice.h"
#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/flash.h"
#include "kernels/operation.h"
#include "runtime/cuda/launch.h"

// Calls the implementation that kernels/attention_choice.h chooses, both for calls and for plans.
namespace muo::cuda {
namespace {

using Kernels = AttentionChoice::Kernels;

AttentionChoice choose(AttentionSize size, AttentionDirection direction,
                       const AttentionAlignment& alignment) {
  if (size.method.kernels == AttentionKernels::kAuto)
    size.method.kernels = attention_kernels_of_environment();
  const auto choose = [&](const LibraryQuery& library) {
    return choose_attention(size, direction, library, alignment,
                            direction == AttentionDirection::kBackward && has_warpgroup_products());
  };
  const AttentionChoice first = choose([&] {
    return cudnn_attention_support(problem_of(size), direction, size.method.deterministic);
  });
  if (first.kernels != Kernels::kLibrary) return first;
  const std::string wrong = cudnn_attention_is_wrong(size, direction);
  return wrong.empty() ? first : choose([&] { return LibraryAttention{.why_not = wrong}; });
}

// Calls the kernels that were chosen for these arguments.
template <class Args>
void run_chosen(NativeStream stream, const Args& args, AttentionDirection direction,
                void (*library)(NativeStream, const Args&),
                void (*warpgroups)(NativeStream, const std::type_identity_t<Args>&),
                void (*tensor_cores)(NativeStream, const Args&),
                void (*portable)(NativeStream, const Args&)) {
  switch (choose(attention_size_of(args), direction, alignment_of(args)).kernels) {
    case Kernels::kLibrary:
      return library(stream, args);
    case Kernels::kWarpgroups:
      return warpgroups(stream, args);
    case Kernels::kTensorCores:
      return tensor_cores(stream, args);
    case Kernels::kPortable:
      return portable(stream, args);
  }
}

void attention(NativeStream stream, const AttentionArgs& args) {
  run_chosen(stream, args, AttentionDirection::kForward, &cudnn_attention, nullptr,
             &flash_attention, &portable_attention);
}

void attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  run_chosen(stream, args, AttentionDirection::kBackward, &cudnn_attention_backward,
             &warpgroup_attention_backward, &flash_attention_backward,
             &portable_attention_backward);
}

const KernelRegistration registration(&attention, &attention_backward);

[[maybe_unused]] const bool registered = [] {
  static_cast<void>(register_attention_backend(
      {.choose = [](const AttentionSize& size, AttentionDirection direction) {
        return choose(size, direction, {});
      }}));
  return true;
}();

}  // namespace
}  // namespace muo::cuda
