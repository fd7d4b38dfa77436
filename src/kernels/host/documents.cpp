#include "kernels/documents.h"

#include "kernels/operation.h"

namespace muo::host {
namespace {

void document_starts(const DocumentStartsArgs& args) {
  const std::int64_t b = args.tokens.shape[0], t = args.tokens.shape[1];
  for (std::int64_t row = 0; row < b; ++row) {
    const auto* tokens = args.tokens.as<std::int32_t>() + row * t;
    auto* starts = args.starts.as<std::int32_t>() + row * t;
    std::int32_t start = 0;
    for (std::int64_t i = 0; i < t; ++i) {
      if (tokens[i] == args.document_token) start = static_cast<std::int32_t>(i);
      starts[i] = start;
    }
  }
}

const KernelRegistration kRegistration(&document_starts);

}  // namespace
}  // namespace muo::host
