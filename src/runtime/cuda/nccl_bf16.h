#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/comm/collective.h"
#include "runtime/cuda/nccl_library.h"

namespace muo::nccl {

// A rank's end of an NCCL communicator, for add_bf16().
struct BF16Rank {
  const Library& library;
  Comm comm;
  int rank, world;
  std::byte* scratch;  // bf16_scratch_bytes()
};
std::int64_t bf16_scratch_bytes(int world);

// A collective that sums bf16 (is_sum). NCCL rounds such sums at every rank and cannot output fp32,
// so each rank receives the others' values of the elements that it owns, and adds them in fp32, in
// the order of ranks. Sends as much as NCCL's own collectives, but a kReduce loads the root's link
// with (world - 1) times the vector. Collectives of a rank must not run at the same time, as they
// share the scratch memory.
void add_bf16(const BF16Rank& here, Stream& stream, const Collective& c);

}  // namespace muo::nccl
