#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/comm/collective.h"
#include "runtime/comm/peer_protocol.h"

namespace muo::peer {

// Copies `count` elements. Source or destination may be a peer's memory.
struct Copy {
  std::byte* to;
  const std::byte* from;
  std::int64_t count;
};

// One rank's share of a collective, as a kernel argument. It is constant for the life of a captured
// graph: values that change from replay to replay are in the mailbox.
struct Work {
  int rank, world;
  int ctas;     // the same on all ranks
  int threads;  // per CTA
  bool middle;  // copies read what peers' sums wrote
  DType dtype, out_dtype;
  int element_bytes;  // of dtype
  std::uint32_t kind, tag;
  // sum_out[i] = sum over ranks, in their order, of sum_in[rank][i]
  std::int64_t sum_count;
  std::byte* sum_out;
  const std::byte* sum_in[kMaxRanks];
  int copies;
  Copy copy[kMaxRanks];
  std::int64_t wire_bytes;
  std::uint64_t deadline_ns;  // 0: none
  Mailbox* mailbox[kMaxRanks];
  Control* control;
};

// Work of `rank` in the collective that all ranks have posted; the protocol's words are not set.
Work share_work(int rank, std::span<const Collective> by_rank);

// The part of n elements that CTA c of `ctas` works on. Boundaries are multiples of 16 elements, so
// that slices of aligned vectors are aligned, whatever the dtype.
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
