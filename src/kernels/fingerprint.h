#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// out <- a 64-bit hash of x's bit patterns and their indices: the sum, modulo 2^64, over all
// elements i of mix(bits(x[i]) + (i + 1) * golden ratio), where mix is the finalizer of splitmix64
// (Steele et al. 2014). Because it is a sum, any split of the work gives the same value. Equal bits
// give equal hashes; replicas that differ in one bit have different hashes.
struct FingerprintArgs {
  Tensor out;  // (1) int64
  Tensor x;    // any shape, fp32 or bf16
};
void fingerprint(Stream& stream, const FingerprintArgs& args);

}  // namespace muo
