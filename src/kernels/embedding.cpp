#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

// Counts only the rows of the table that tokens refer to.
Cost cost(const EmbeddingArgs& args) {
  return {.bytes = static_cast<double>(2 * args.y.bytes() + args.tokens.bytes())};
}
// fp32 rows are zeroed, then read and written for every token; a bf16 row is written once.
Cost backward_cost(const EmbeddingBackwardArgs& args) {
  const std::int64_t rows = args.dy.numel() * size_of(args.dtable.dtype);
  const std::int64_t zeroed = args.accumulate ? 0 : args.dtable.bytes();
  std::int64_t sums = 2 * rows;
  if (args.dtable.dtype == DType::kBF16)
    sums = args.accumulate ? 2 * std::min(rows, args.dtable.bytes()) : 0;
  const std::int64_t scale = args.scale ? args.scale.bytes() : 0;
  return {.bytes =
              static_cast<double>(sums + zeroed + args.dy.bytes() + args.tokens.bytes() + scale)};
}

Operation<EmbeddingArgs> forward("embedding", &cost);
Operation<GroupTokensArgs> grouping("group_tokens");
Operation<EmbeddingBackwardArgs> backward("embedding_backward", &backward_cost);

}  // namespace

void embedding(Stream& stream, const EmbeddingArgs& args) {
  ArgumentCheck check("embedding");
  check.rank("table", args.table, 2, "(v, c)", args.table.dtype);
  check.rank("tokens", args.tokens, 1, "(n)", DType::kI32);
  check.tensor("y", args.y, {args.tokens.shape[0], args.table.shape[1]}, args.table.dtype);
  check.no_overlap({{"y", args.y}}, {{"table", args.table}, {"tokens", args.tokens}});
  forward.submit(stream, args, {.writes = {args.y}, .reads = {args.table, args.tokens}});
}

void group_tokens(Stream& stream, const GroupTokensArgs& args) {
  ArgumentCheck check("group_tokens");
  check.rank("tokens", args.tokens, 1, "(n)", DType::kI32);
  check.that(args.vocab >= 0, concat("vocab is ", args.vocab, ", expected 0 or more"));
  check.tensor("groups", args.groups, {token_groups_size(args.tokens.numel(), args.vocab)},
               DType::kI32);
  check.no_overlap("groups", args.groups, "tokens", args.tokens);
  grouping.submit(stream, args, {.writes = {args.groups}, .reads = {args.tokens}});
}

void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  ArgumentCheck check("embedding_backward");
  check.fp32_or_bf16("dtable", args.dtable, 2, "(v, c)");
  check.rank("tokens", args.tokens, 1, "(n)", DType::kI32);
  check.tensor("dy", args.dy, {args.tokens.shape[0], args.dtable.shape[1]}, args.dy.dtype);
  if (args.scale) {
    check.rank("scale", args.scale, 2, "(n, groups)");
    check.that(args.scale.shape[0] == args.tokens.shape[0] && args.scale.shape[1] > 0 &&
                   args.dtable.shape[1] % args.scale.shape[1] == 0,
               "scale is not (n, groups), or groups does not divide c");
  }
  check.tensor("groups", args.groups,
               {token_groups_size(args.tokens.numel(), args.dtable.shape[0])}, DType::kI32);
  check.no_overlap({{"dtable", args.dtable}},
                   {{"dy", args.dy}, {"tokens", args.tokens}, {"groups", args.groups}});
  const Tensor none;
  backward.submit(stream, args,
                  {.writes = {args.accumulate ? none : args.dtable},
                   .updates = {args.accumulate ? args.dtable : none},
                   .reads = {args.dy, args.tokens, args.groups, args.scale}});
}

}  // namespace muo
