#pragma once

#include "kernels/embedding.h"

namespace muo::host {
void embedding(const EmbeddingArgs& args);
void embedding_backward(const EmbeddingBackwardArgs& args);
}  // namespace muo::host
