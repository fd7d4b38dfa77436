#pragma once

#include "kernels/embedding.h"
#include "support/tensors.h"

namespace muo::test {

// The token groups that embedding_backward needs for these tokens.
inline HostTensor grouped(Stream& stream, const HostTensor& tokens, std::int64_t vocab) {
  HostTensor groups({token_groups_size(Tensor(tokens).numel(), vocab)}, DType::kI32);
  group_tokens(stream, {.groups = groups, .tokens = tokens, .vocab = vocab});
  return groups;
}

}  // namespace muo::test
