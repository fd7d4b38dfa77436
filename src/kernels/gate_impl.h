#pragma once

#include "kernels/gate.h"

namespace muo::host {
void value_embedding(const ValueEmbeddingArgs& args);
void value_embedding_backward(const ValueEmbeddingBackwardArgs& args);
void smear(const SmearArgs& args);
void smear_backward(const SmearBackwardArgs& args);
}  // namespace muo::host
