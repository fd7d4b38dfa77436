#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// out <- a 64-bit hash of x's bit patterns and their indices: the sum, modulo 2^64, over elements i
// of mix(bits(x[i]) + (i + 1) * golden ratio), with the finalizer of splitmix64 (Steele et al.
// 2014). A sum, so that any split of the work gives the same value. Equal bits give equal hashes;
// replicas that differ in one bit differ in the hash.
struct FingerprintArgs {
  Tensor out;  // (1) int64
  Tensor x;    // any shape, fp32 or bf16
};
void fingerprint(Stream& stream, const FingerprintArgs& args);

}  // namespace muo
