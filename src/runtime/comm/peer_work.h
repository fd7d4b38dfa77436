#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/comm/collective.h"
#include "runtime/comm/peer_protocol.h"

namespace muo::peer {

// `count` elements, from where they lie to where they go. Either may be a peer's memory.
struct Copy {
  std::byte* to;
  const std::byte* from;
  std::int64_t count;
};

// One rank's share of a collective: a kernel's argument. Constant for the life of a captured graph:
// what changes from replay to replay lies in the mailbox.
struct Work {
  int rank, world;
  int ctas;     // the same on all ranks
  int threads;  // of a CTA
  bool middle;  // copies read what peers' sums wrote
  DType dtype, out_dtype;
  int element_bytes;  // of dtype
  std::uint32_t kind, tag;
  // sum_out[i] = sum over ranks, in their order, of sum_in[rank][i]
  std::int64_t sum_count;
  std::byte* sum_out;
  const std::byte* sum_in[kMostRanks];
  int copies;
  Copy copy[kMostRanks];
  std::int64_t wire_bytes;
  std::uint64_t deadline_ns;  // 0: none
  Mailbox* mailbox[kMostRanks];
  Control* control;
};

// What `rank` does in the collective that all ranks have posted; without the words of the protocol.
Work share_work(int rank, std::span<const Collective> by_rank);

// The part of n elements that CTA c of `ctas` works on. Boundaries are multiples of 16 elements,
// which keeps slices of aligned vectors aligned, whatever the dtype.
struct Slice {
  std::int64_t begin, end;
};
MUO_PEER_FUNCTION Slice slice_of(std::int64_t n, int c, int ctas) {
  const std::int64_t each = ((n + ctas - 1) / ctas + 15) / 16 * 16;
  const std::int64_t begin = each * c;
  const std::int64_t end = begin + each;
  return {begin < n ? begin : n, end < n ? end : n};
}

}  // namespace muo::peer
