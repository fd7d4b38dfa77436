#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "kernels/argument_check.h"
#include "kernels/attention_choice.h"
#include "kernels/host/attention.h"
#include "kernels/operation.h"
#include "kernels/rotary.h"

namespace muo {
namespace {

// The cost of `products` matrix products, each with 2 h FLOPs for every pair of query and
// key within the window. It is an upper bound if there are documents, because their
// boundaries are data.
template <class Args>
Cost cost(const Args& args, int products) {
  const Shape& q = args.q.shape;
  const std::int64_t b = q[0], t = q[1], heads = q[2], h = q[3];
  const std::int64_t window = std::min(args.window, t - 1);
  // Query i sees min(i, window) keys and itself.
  const std::int64_t pairs = window * (window + 1) / 2 + (t - window) * (window + 1);
  return {
      .shape = concat(b, 'x', t, 'x', heads, 'x', h,
                      window < t - 1 ? concat(" w", window) : std::string{}),
      .flops = 2.0 * products * static_cast<double>(b * heads * pairs) * static_cast<double>(h)};
}

Operation<AttentionArgs> forward_operation(
    "attention", +[](const AttentionArgs& args) { return cost(args, 2); });
Operation<AttentionBackwardArgs> backward_operation(  // includes recomputing the scores
    "attention_backward", +[](const AttentionBackwardArgs& args) { return cost(args, 5); });

constexpr std::int64_t kMaxHead = 256;

AttentionBackend device;  // constant-initialised: libraries may register at any time

// Whether these kernels are chosen for gradients if size.method.deterministic is false.
bool chooses_in_any_order(AttentionSize size, AttentionChoice::Kernels kernels) {
  size.method.deterministic = false;
  return device.choose != nullptr &&
         device.choose(size, AttentionDirection::kBackward).kernels == kernels;
}

// Scratch that the device needs, in fp32 elements; 0 if there is no device.
std::int64_t device_workspace(const AttentionSize& size, AttentionDirection direction) {
  return device.choose == nullptr ? 0 : device.choose(size, direction).workspace;
}

// Checks the arguments that both directions share.
template <class Args>
void check_common(ArgumentCheck& check, const Stream& stream, const Args& args,
                  AttentionDirection direction) {
  const DType dtype = args.q.dtype;
  check.fp32_or_bf16("q", args.q, 4, "(b, t, heads, h)");
  check.rank("k", args.k, 4, "(b, t, kv_heads, h)", dtype);
  const std::int64_t b = args.q.shape[0], t = args.q.shape[1], heads = args.q.shape[2],
                     h = args.q.shape[3], kv_heads = args.k.shape[2];
  check.that(b > 0 && t > 0 && heads > 0 && h > 0,
             "q is " + args.q.shape.text() + ", expected extents above 0");
  check.that(h <= kMaxHead, concat("head size ", h, ", expected at most ", kMaxHead));
  check.that(kv_heads > 0 && heads % kv_heads == 0,
             concat(heads, " query heads cannot share ", kv_heads,
                    " key-value heads: their number must divide that of the query heads"));
  check.that(args.window >= 0,
             concat("window is ", args.window, ", expected 0 (a query sees itself only) or more"));
  check.tensor("k", args.k, {b, t, kv_heads, h}, dtype);
  check.tensor("v", args.v, {b, t, kv_heads, h}, dtype);
  check.tensor("out", args.out, {b, t, heads, h}, dtype);
  check.tensor("lse", args.lse, {b, heads, t});
  if (args.starts) check.tensor("starts", args.starts, {b, t}, DType::kI32);
  check.any_shape("workspace", args.workspace);
  const std::int64_t needed = stream.is_host()
                                  ? host::attention_workspace(t, h, dtype)
                                  : device_workspace(attention_size_of(args), direction);
  check.that(args.workspace && args.workspace.numel() >= needed,
             concat("workspace has ", args.workspace.numel(), " elements, needs ", needed,
                    " (attention_workspace)"));
}

bool kernels_fuse_rotary(const Stream& stream, const AttentionBackwardArgs& args) {
  const AttentionAlignment alignment = alignment_of(args);
  if (stream.is_host() || !alignment.tensors || !alignment.workspace) return false;
  const AttentionSize size = attention_size_of(args);
  return fuses_rotary(device.choose(size, AttentionDirection::kBackward).kernels, size.h);
}

}  // namespace

std::int64_t attention_workspace(const AttentionSize& size) {
  std::int64_t most = std::max(host::attention_workspace(size.t, size.h, size.dtype),
                               device_workspace(size, AttentionDirection::kForward));
  if (size.backward) most = std::max(most, device_workspace(size, AttentionDirection::kBackward));
  return most;
}

bool host_attention_multiplies_bf16() { return host::attention_multiplies_bf16(); }

std::string describe_attention(const AttentionSize& size) {
  if (device.choose == nullptr) return {};
  const AttentionChoice forward = device.choose(size, AttentionDirection::kForward);
  if (!size.backward) return describe(forward, nullptr);
  const AttentionChoice backward = device.choose(size, AttentionDirection::kBackward);
  return describe(forward, &backward);
}

bool attention_is_faster_in_any_order(AttentionSize size) {
  return chooses_in_any_order(size, AttentionChoice::Kernels::kLibrary);
}
bool attention_uses_warpgroups(AttentionSize size) {
  return chooses_in_any_order(size, AttentionChoice::Kernels::kWarpgroups);
}

AttentionKernels attention_kernels_of_environment() {
  const char* name = std::getenv("MUO_ATTENTION");  // NOLINT(concurrency-mt-unsafe): only read
  if (name == nullptr) return AttentionKernels::kAuto;
  const auto kernels = value_of<AttentionKernels>(name);
  if (!kernels)
    throw InputError(
        concat("MUO_ATTENTION: '", name, "' is unknown: give auto, cudnn, own, portable"));
  return *kernels;
}

AttentionBackend register_attention_backend(const AttentionBackend& backend) {
  return std::exchange(device, backend);
}

void attention(Stream& stream, const AttentionArgs& args) {
  ArgumentCheck check("attention");
  check_common(check, stream, args, AttentionDirection::kForward);
  check.no_overlap({{"out", args.out}, {"lse", args.lse}, {"workspace", args.workspace}},
                   {{"q", args.q}, {"k", args.k}, {"v", args.v}, {"starts", args.starts}});
  forward_operation.submit(stream, args,
                           {.writes = {args.out, args.lse, args.workspace},
                            .reads = {args.q, args.k, args.v, args.starts}});
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  ArgumentCheck check("attention_backward");
  check_common(check, stream, args, AttentionDirection::kBackward);
  check.tensor("dout", args.dout, args.q.shape, args.q.dtype);
  check.tensor("dq", args.dq, args.q.shape, args.q.dtype);
  check.tensor("dk", args.dk, args.k.shape, args.q.dtype);
  check.tensor("dv", args.dv, args.k.shape, args.q.dtype);
  check.no_overlap(
      {{"dq", args.dq}, {"dk", args.dk}, {"dv", args.dv}, {"workspace", args.workspace}},
      {{"dout", args.dout},
       {"out", args.out},
       {"lse", args.lse},
       {"q", args.q},
       {"k", args.k},
       {"v", args.v},
       {"starts", args.starts}});
  const AttentionRotary& rotary = args.rotary;
  const auto rotary_pass = [&](const Tensor& dx, const Tensor& y, const Tensor& rstd) {
    return RotaryNormBackwardArgs{.dx = dx,
                                  .y = y,
                                  .rstd = rstd,
                                  .cos = rotary.cos,
                                  .sin = rotary.sin,
                                  .scale = rotary.scale};
  };
  const std::array passes = {rotary_pass(args.dq, args.q, rotary.q_rstd),
                             rotary_pass(args.dk, args.k, rotary.k_rstd)};
  if (rotary.cos) std::ranges::for_each(passes, check_arguments);
  const bool unfused = rotary.cos && !kernels_fuse_rotary(stream, args);
  AttentionBackwardArgs submitted = args;
  if (unfused) submitted.rotary = {};
  backward_operation.submit(
      stream, submitted,
      {.writes = {args.dq, args.dk, args.dv, args.workspace},
       .reads = {args.dout, args.out, args.lse, args.q, args.k, args.v, args.starts}});
  if (unfused)
    for (const RotaryNormBackwardArgs& pass : passes)
      rotary_norm_backward(stream, pass);
}

}  // namespace muo
