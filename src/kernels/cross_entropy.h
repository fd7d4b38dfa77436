#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Soft-cap, log-softmax and cross-entropy of a chunk of rows, with the gradient in place:
//   z = softcap * tanh(logits / softcap) over columns [0, vocab); softcap 0: z = logits
//   losses[i] = logsumexp(z[i]) - z[i, targets[i]]                       nats
//   logits[i, j] <- gradient_scale * (softmax(z)[i, j] - [j == targets[i]]) * (1 - (z/softcap)^2)
// Columns from `vocab` on are padding: they are ignored and get gradient 0. A row whose target is
// -1 has loss 0 and gradient 0. Logits may be bf16; losses and z are fp32 even then, and only the
// gradient is rounded. The caller splits the batch into chunks, so the logits of the whole batch
// never exist at once.
struct CrossEntropyArgs {
  Tensor losses;   // (n) out, fp32
  Tensor logits;   // (n, padded vocab) in-out, fp32 or bf16; on return the gradient
  Tensor targets;  // (n) int32
  std::int64_t vocab = 0;
  float softcap = 0.0F;
  Tensor gradient_scale = {};  // (1) fp32; absent: losses only, logits become undefined
};
void cross_entropy(Stream& stream, const CrossEntropyArgs& args);

// logits <- softcap * tanh(logits / softcap), for sampling; softcap 0 leaves them unchanged.
struct SoftCapArgs {
  Tensor logits;  // any shape, in-out, fp32 or bf16
  float softcap = 0.0F;
};
void soft_cap(Stream& stream, const SoftCapArgs& args);

}  // namespace muo
