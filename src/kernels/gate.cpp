#include "kernels/gate.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

// Bytes of gates, tokens, and those channels of x that the gates read. Of the table, only the rows
// of the tokens are counted, as often as v is.
template <class Args>
double gate_bytes(const Args& args) {
  return static_cast<double>(args.gates.bytes() + args.tokens.bytes() +
                             args.x.shape[0] * args.weight.shape[1] * size_of(args.x.dtype));
}
Cost cost(const ValueEmbeddingArgs& args) {
  return {.bytes = 3.0 * static_cast<double>(args.v.bytes()) + gate_bytes(args)};
}
Cost backward_cost(const ValueEmbeddingBackwardArgs& args) {
  return {.bytes = 2.0 * static_cast<double>(args.dv.bytes()) + gate_bytes(args)};
}

Operation<ValueEmbeddingArgs> value_forward("value_embedding", &cost);
Operation<ValueEmbeddingBackwardArgs> value_backward("value_embedding_backward", &backward_cost);
Operation<SmearArgs> smear_forward("smear");
Operation<SmearBackwardArgs> smear_back("smear_backward");

// Checks the inputs that forward and backward of the value embedding share.
template <class Args>
void check_value_inputs(ArgumentCheck& check, const Args& args, const Tensor& v) {
  const DType dtype = args.x.dtype;
  check.rank("x", args.x, 2, "(n, c)", dtype);
  check.rank("weight", args.weight, 2, "(kv_heads, g)", dtype);
  check.rank("table", args.table, 2, "(vocab, kv_heads h)", dtype);
  const std::int64_t n = args.x.shape[0];
  const std::int64_t heads = args.weight.shape[0];
  check.that(args.weight.shape[1] <= args.x.shape[1], "the gate reads more channels than x has");
  check.that(args.weight.numel() <= kMaxGateWeights, "more gate weights than kMaxGateWeights");
  check.that(heads > 0 && args.table.shape[1] % heads == 0,
             "the table's rows cannot be divided into heads");
  check.tensor("v or dv", v, {n, args.table.shape[1]}, dtype);
  check.tensor("gates", args.gates, {n, heads});
  check.tensor("tokens", args.tokens, {n}, DType::kI32);
}

template <class Args>
void check_smear_inputs(ArgumentCheck& check, const Args& args) {
  check.rank("x", args.x, 3, "(b, t, c)", args.x.dtype);
  check.tensor("gates", args.gates, {args.x.shape[0], args.x.shape[1]});
  check.rank("weight", args.weight, 2, "(1, g)");
  check.that(args.weight.numel() <= kMaxGateWeights, "more gate weights than kMaxGateWeights");
  check.that(args.weight.shape[0] == 1 && args.weight.shape[1] <= args.x.shape[2],
             "weight is not (1, g) with g at most c");
  check.tensor("lambda", args.lambda, {1});
}

}  // namespace

void value_embedding(Stream& stream, const ValueEmbeddingArgs& args) {
  ArgumentCheck check("value_embedding");
  check_value_inputs(check, args, args.v);
  check.no_overlap({{"v", args.v}}, {{"x", args.x}, {"table", args.table}});
  value_forward.submit(stream, args,
                       {.writes = {args.gates},
                        .updates = {args.v},
                        .reads = {args.x, args.weight, args.table, args.tokens}});
}

void value_embedding_backward(Stream& stream, const ValueEmbeddingBackwardArgs& args) {
  ArgumentCheck check("value_embedding_backward");
  check_value_inputs(check, args, args.dv);
  check.tensor("dx", args.dx, args.x.shape, args.x.dtype);
  check.fp32_or_bf16("dweight", args.dweight, args.weight.shape);
  check.no_overlap({{"dx", args.dx}}, {{"x", args.x}, {"dv", args.dv}});
  value_backward.submit(
      stream, args,
      {.writes = {args.dweight},
       .updates = {args.dx},
       .reads = {args.dv, args.gates, args.x, args.weight, args.table, args.tokens}});
}

void smear(Stream& stream, const SmearArgs& args) {
  ArgumentCheck check("smear");
  check_smear_inputs(check, args);
  check.tensor("y", args.y, args.x.shape, args.x.dtype);
  if (args.previous || args.positions) {
    const Shape& x = args.x.shape;
    check.tensor("previous", args.previous, {x[0], x[2]}, args.x.dtype);
    check.tensor("positions", args.positions, {x[0]}, DType::kI32);
  }
  if (args.starts)
    check.tensor("starts", args.starts, {args.x.shape[0], args.x.shape[1]}, DType::kI32);
  check.no_overlap({{"y", args.y}}, {{"x", args.x}, {"previous", args.previous}});
  smear_forward.submit(
      stream, args,
      {.writes = {args.y, args.gates},
       .reads = {args.x, args.weight, args.lambda, args.previous, args.positions, args.starts}});
}

void smear_backward(Stream& stream, const SmearBackwardArgs& args) {
  ArgumentCheck check("smear_backward");
  check_smear_inputs(check, args);
  check.tensor("dx", args.dx, args.x.shape, args.x.dtype);
  check.tensor("dy", args.dy, args.x.shape, args.x.dtype);
  check.tensor("dweight", args.dweight, args.weight.shape);
  check.tensor("dlambda", args.dlambda, {1});
  check.no_overlap({{"dx", args.dx}}, {{"dy", args.dy}, {"x", args.x}});
  smear_back.submit(stream, args,
                    {.writes = {args.dx, args.dweight, args.dlambda},
                     .reads = {args.dy, args.x, args.gates, args.weight, args.lambda}});
}

}  // namespace muo
