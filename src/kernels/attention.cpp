#include "kernels/attention.h"

#include "base/check.h"
#include "kernels/attention_impl.h"
#include "kernels/operation.h"

namespace muo {
namespace {

const Operation<AttentionArgs> kAttention("attention", &host::attention);
const Operation<AttentionBackwardArgs> kAttentionBackward("attention_backward",
                                                          &host::attention_backward);

constexpr std::int64_t kMaxHead = 256;

void expect(const Tensor& x, const char* name, const Shape& shape) {
  MUO_CHECK(x, "attention: ", name, " is missing");
  MUO_CHECK(x.dtype == DType::kF32, "attention: ", name, " is ", name_of(x.dtype),
            ", expected fp32");
  MUO_CHECK(x.shape == shape, "attention: ", name, " is ", x.shape.text(), ", expected ",
            shape.text());
}

// What both directions share. `args` has q, k, v, lse, workspace, window.
template <class Args>
void check(const Args& args) {
  MUO_CHECK(args.q && args.q.shape.rank() == 4, "attention: q is ", args.q.shape.text(),
            ", expected (b, t, heads, h)");
  MUO_CHECK(args.k && args.k.shape.rank() == 4, "attention: k is ", args.k.shape.text(),
            ", expected (b, t, kv_heads, h)");
  const std::int64_t b = args.q.shape[0], t = args.q.shape[1], heads = args.q.shape[2],
                     h = args.q.shape[3], kv_heads = args.k.shape[2];
  MUO_CHECK(b > 0 && t > 0 && heads > 0 && h > 0, "attention: q is ", args.q.shape.text(),
            ", expected extents above 0");
  MUO_CHECK(h <= kMaxHead, "attention: head size ", h, ", at most ", kMaxHead, " is supported");
  MUO_CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention: ", heads,
            " query heads cannot share ", kv_heads,
            " key-value heads; the second must divide the first");
  MUO_CHECK(args.window >= 0, "attention: window is ", args.window,
            ", expected at least 0 (0: a query sees itself only)");
  expect(args.q, "q", {b, t, heads, h});
  expect(args.k, "k", {b, t, kv_heads, h});
  expect(args.v, "v", {b, t, kv_heads, h});
  expect(args.out, "out", {b, t, heads, h});
  expect(args.lse, "lse", {b, heads, t});
  const std::int64_t needed = attention_workspace(b, t, heads, kv_heads, h);
  MUO_CHECK(
      args.workspace && args.workspace.dtype == DType::kF32 && args.workspace.numel() >= needed,
      "attention: workspace has ", args.workspace.numel(), " elements of ",
      name_of(args.workspace.dtype), ", needs ", needed, " of fp32 (attention_workspace)");
}

}  // namespace

std::int64_t attention_workspace(std::int64_t /*b*/, std::int64_t t, std::int64_t /*heads*/,
                                 std::int64_t /*kv_heads*/, std::int64_t h) {
  return host::attention_workspace(t, h);
}

void attention(Stream& stream, const AttentionArgs& args) {
  check(args);
  kAttention.submit(
      stream, args,
      {.writes = {args.out, args.lse, args.workspace}, .reads = {args.q, args.k, args.v}});
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  check(args);
  expect(args.dout, "dout", args.q.shape);
  expect(args.dq, "dq", args.q.shape);
  expect(args.dk, "dk", args.k.shape);
  expect(args.dv, "dv", args.k.shape);
  kAttentionBackward.submit(stream, args,
                            {.writes = {args.dq, args.dk, args.dv, args.workspace},
                             .reads = {args.dout, args.out, args.lse, args.q, args.k, args.v}});
}

}  // namespace muo
