#include "runtime/comm/peer_work.h"

#include <algorithm>

#include "base/check.h"

namespace muo::peer {
namespace {

// With fewer bytes, a CTA would spend its time in barriers.
constexpr std::int64_t kBytesPerCta = std::int64_t{32} << 10;

// A rank's part of a vector that all ranks sum. Boundaries are multiples of 16 elements, so that
// all parts of an aligned vector are aligned.
Share aligned_share(int rank, int world, std::int64_t count) {
  const Slice slice = slice_of(count, rank, world);
  return {slice.begin, slice.end - slice.begin};
}

class Sharing {
 public:
  Sharing(int rank, std::span<const Collective> by_rank)
      : posts_(by_rank), mine_(by_rank[static_cast<std::size_t>(rank)]) {
    MUO_CHECK(by_rank.size() <= kMaxRanks, by_rank.size(), " ranks");
    const std::int64_t bytes = mine_.count * size_of(mine_.dtype);
    work_.rank = rank;
    work_.world = static_cast<int>(by_rank.size());
    work_.ctas = static_cast<int>(
        std::clamp<std::int64_t>((bytes + kBytesPerCta - 1) / kBytesPerCta, 1, kMaxCtas));
    work_.dtype = mine_.dtype;
    work_.out_dtype = mine_.out_dtype;
    work_.element_bytes = static_cast<int>(size_of(mine_.dtype));
    work_.kind = static_cast<std::uint32_t>(mine_.kind);
    work_.tag = mine_.tag;
    work_.wire_bytes = mine_.wire_bytes;
  }

  Work work() {
    const int rank = work_.rank;
    const int world = work_.world;
    switch (mine_.kind) {
      case CollectiveKind::kReduceScatter:
        add(mine_.out, 0, {mine_.count / world * rank, mine_.count / world});
        break;
      case CollectiveKind::kAllGather:
      case CollectiveKind::kAllGatherV:
        each_peer([&](int p) { copy(mine_.out, begin_of(p), post(p).in, 0, part_of(p)); });
        break;
      case CollectiveKind::kAllReduce: {
        const Share own = aligned_share(rank, world, mine_.count);
        add(mine_.out, own.first, own);
        work_.middle = true;
        each_peer([&](int p) {
          const Share share = aligned_share(p, world, mine_.count);
          copy(mine_.out, share.first, post(p).out, share.first, share.count);
        });
        break;
      }
      case CollectiveKind::kReduce: {  // every rank adds its share, straight into the root's memory
        const Share own = aligned_share(rank, world, mine_.count);
        work_.out_dtype = post(mine_.root).out_dtype;
        add(post(mine_.root).out, own.first, own);
        break;
      }
      case CollectiveKind::kBroadcast:
        if (rank != mine_.root) copy(mine_.out, 0, post(mine_.root).in, 0, mine_.count);
        break;
      case CollectiveKind::kGather:
        copy(post(mine_.root).out, begin_of(rank), mine_.in, 0, part_of(rank));
        break;
      case CollectiveKind::kScatter:
        copy(mine_.out, 0, post(mine_.root).in, begin_of(rank), part_of(rank));
        break;
      case CollectiveKind::kAllToAll: {
        const std::int64_t segment = mine_.count / world;
        each_peer(
            [&](int p) { copy(mine_.out, p * segment, post(p).in, rank * segment, segment); });
        break;
      }
    }
    return work_;
  }

 private:
  [[nodiscard]] const Collective& post(int rank) const {
    return posts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t begin_of(int rank) const {
    return mine_.counts.empty() ? mine_.count / work_.world * rank : offset_of(rank, mine_.counts);
  }
  [[nodiscard]] std::int64_t part_of(int rank) const {
    return mine_.counts.empty() ? mine_.count / work_.world
                                : mine_.counts[static_cast<std::size_t>(rank)];
  }
  // Starts at the next rank, so that not all ranks read from the same one at once.
  template <class Body>
  void each_peer(const Body& body) const {
    for (int i = 1; i <= work_.world; ++i)
      body((work_.rank + i) % work_.world);
  }
  void copy(const Tensor& to, std::int64_t to_element, const Tensor& from,
            std::int64_t from_element, std::int64_t count) {
    std::byte* target = to.data + to_element * size_of(mine_.dtype);
    const std::byte* source = from.data + from_element * size_of(mine_.dtype);
    if (count > 0 && target != source) work_.copy[work_.copies++] = {target, source, count};
  }
  // out[at + i] <- sum of elements share.first + i.
  void add(const Tensor& out, std::int64_t at, Share share) {
    work_.sum_count = share.count;
    work_.sum_out = out.data + at * size_of(work_.out_dtype);
    for (int p = 0; p < work_.world; ++p)
      work_.sum_in[p] = post(p).in.data + share.first * size_of(mine_.dtype);
  }

  std::span<const Collective> posts_;
  const Collective& mine_;
  Work work_{};
};

}  // namespace

Work share_work(int rank, std::span<const Collective> by_rank) {
  return Sharing(rank, by_rank).work();
}

}  // namespace muo::peer
