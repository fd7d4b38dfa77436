#include <algorithm>
#include <string>

#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/registration.h"
#include "runtime/cuda/launch.h"

#ifdef MUO_CUDNN
#  include "kernels/cuda/cudnn_attention.h"
#endif

// Which implementation computes attention: cuDNN's where it is to be had and its scratch is
// affordable, else the project's own, on tensor cores where they can be used.
namespace muo::cuda {
namespace {

// With deterministic gradients cuDNN stores a t x t matrix for each head. From here on the memory
// is worth more than the time.
[[maybe_unused]] constexpr std::int64_t kMostLibraryBytes = std::int64_t{1} << 30;

struct Choice {
  enum class Kernels { kLibrary, kTensorCores, kPortable } kernels = Kernels::kPortable;
  std::int64_t workspace = 0;  // elements
  std::string why;
};

Choice own_choice(const AttentionProblem& problem, DType dtype) {
  Choice choice{.workspace = flash_workspace(problem.b, problem.t, problem.heads), .why = {}};
  if (dtype != DType::kBF16)
    choice.why = concat("tensors are ", name_of(dtype));
  else if (problem.h % 8 != 0 || problem.h > kMostFlashHead)
    choice.why = concat("head size ", problem.h, " is not a multiple of 8 up to ", kMostFlashHead);
  else if (!(problem.scale > 0.0F))
    choice.why = concat("scale ", problem.scale, " is not above 0");
  else
    choice.kernels = Choice::Kernels::kTensorCores;
  return choice;
}

// The workspace of a library's choice is large enough for the own kernels, too.
Choice choose(const AttentionProblem& problem, DType dtype) {
  Choice own = own_choice(problem, dtype);
  if (own.kernels == Choice::Kernels::kPortable && dtype != DType::kBF16) return own;
#ifdef MUO_CUDNN
  std::string why_not;
  if (!cudnn_attention_usable(problem, dtype, &why_not)) {
    own.why = own.why.empty() ? why_not : concat(own.why, "; ", why_not);
    return own;
  }
  const std::int64_t bytes = cudnn_attention_workspace(problem, true);
  if (bytes <= kMostLibraryBytes)
    return {.kernels = Choice::Kernels::kLibrary,
            .workspace = std::max(own.workspace, ceil_div(bytes, sizeof(float))),
            .why = concat("deterministic gradients take ", bytes >> 20, " MiB of scratch")};
  own.why = concat(own.why, own.why.empty() ? "" : "; ", "cuDNN's deterministic gradients take ",
                   bytes >> 20, " MiB of scratch, more than ", kMostLibraryBytes >> 20);
#else
  if (own.why.empty()) own.why = "this build has no cuDNN";
#endif
  return own;
}

// Views may begin anywhere; vectors of 16 bytes may not.
bool aligned(std::initializer_list<Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
  });
}

void attention(NativeStream stream, const AttentionArgs& args) {
  const Choice choice = choose(problem_of(args), args.q.dtype);
  if (choice.kernels == Choice::Kernels::kPortable || !aligned({args.out, args.q, args.k, args.v}))
    return portable_attention(stream, args);
#ifdef MUO_CUDNN
  if (choice.kernels == Choice::Kernels::kLibrary && aligned({args.workspace}))
    return cudnn_attention(stream, args);
#endif
  flash_attention(stream, args);
}

void attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  const Choice choice = choose(problem_of(args), args.q.dtype);
  if (choice.kernels == Choice::Kernels::kPortable ||
      !aligned({args.dq, args.dk, args.dv, args.dout, args.out, args.q, args.k, args.v}))
    return portable_attention_backward(stream, args);
#ifdef MUO_CUDNN
  if (choice.kernels == Choice::Kernels::kLibrary && aligned({args.workspace}))
    return cudnn_attention_backward(stream, args);
#endif
  flash_attention_backward(stream, args);
}

AttentionProblem problem_of(const AttentionSize& size) {
  return {.b = size.b,
          .t = size.t,
          .heads = size.heads,
          .kv_heads = size.kv_heads,
          .h = size.h,
          .window = std::min(size.window, size.t),
          .scale = size.scale};
}

const KernelRegistration<AttentionArgs> forward(&attention);
const KernelRegistration<AttentionBackwardArgs> backward(&attention_backward);

}  // namespace

std::string describe_attention(const AttentionProblem& problem, DType dtype) {
  const Choice choice = choose(problem, dtype);
  switch (choice.kernels) {
    case Choice::Kernels::kLibrary:
      return concat("cuDNN; ", choice.why);
    case Choice::Kernels::kTensorCores:
      return concat("own kernels on tensor cores; ", choice.why);
    case Choice::Kernels::kPortable:
      break;
  }
  return concat("own kernels in fp32; ", choice.why);
}

namespace {

[[maybe_unused]] const bool registered = [] {
  register_attention_backend(
      {.workspace =
           [](const AttentionSize& size) { return choose(problem_of(size), size.dtype).workspace; },
       .describe =
           [](const AttentionSize& size) {
             return describe_attention(problem_of(size), size.dtype);
           }});
  return true;
}();

}  // namespace
}  // namespace muo::cuda
