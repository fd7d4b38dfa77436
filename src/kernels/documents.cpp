#include "kernels/documents.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<DocumentStartsArgs> operation("document_starts");

}  // namespace

void document_starts(Stream& stream, const DocumentStartsArgs& args) {
  ArgumentCheck check("document_starts");
  check.rank("tokens", args.tokens, 2, "(b, t)", DType::kI32);
  check.tensor("starts", args.starts, args.tokens.shape, DType::kI32);
  check.no_overlap({{"starts", args.starts}}, {{"tokens", args.tokens}});
  operation.submit(stream, args, {.writes = {args.starts}, .reads = {args.tokens}});
}

}  // namespace muo
