#include "runtime/host/host_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "runtime/host/rank_sum.h"

namespace muo {
namespace {

constexpr std::string_view kSite = "collective";

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllGatherV:
      return "all_gather_v";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
  }
  return "?";
}

std::string text(const CollectivePost& post) {
  std::string out = concat(name_of(post.kind), " with tag ", post.tag, " of ", post.count, " ",
                           name_of(post.dtype));
  if (post.out_dtype != post.dtype) out += concat(" into ", name_of(post.out_dtype));
  if (post.root >= 0) out += concat(" at root ", post.root);
  if (!post.counts.empty()) {
    out += " in parts of";
    for (const std::int64_t n : post.counts)
      out += concat(" ", n);
  }
  return out;
}

bool pairs_with(const CollectivePost& a, const CollectivePost& b) {
  return a.kind == b.kind && a.tag == b.tag && a.count == b.count && a.dtype == b.dtype &&
         (a.out_dtype == b.out_dtype || a.kind == CollectiveKind::kReduce) && a.root == b.root &&
         std::equal(a.counts.begin(), a.counts.end(), b.counts.begin(), b.counts.end());
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a && b && a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(HostCommunicatorGroup& group, int rank)
      : group_(group), rank_(rank), inputs_(group.posts.size()) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return static_cast<int>(group_.posts.size()); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  void check() const override {}  // a collective that was broken has thrown

  void reduce_scatter(Stream& stream, Tag tag, Tensor shard, Tensor full) override {
    check_segments(full, shard);
    MUO_CHECK(can_add(full.dtype, shard.dtype), "reduce_scatter of ", name_of(full.dtype), " into ",
              name_of(shard.dtype));
    submit(stream, {CollectiveKind::kReduceScatter, tag}, shard, full, {}, others(full.bytes()));
  }

  void all_gather(Stream& stream, Tag tag, Tensor full, Tensor shard) override {
    check_segments(full, shard);
    check_same_dtype(full, shard);
    submit(stream, {CollectiveKind::kAllGather, tag}, full, shard, {}, others(full.bytes()),
           rank_ * shard.numel());
  }

  void all_gather_v(Stream& stream, Tag tag, Tensor full, Tensor shard,
                    std::span<const std::int64_t> counts) override {
    check_parts(full, shard, counts, true);
    check_same_dtype(full, shard);
    submit(stream, {CollectiveKind::kAllGatherV, tag}, full, shard, counts,
           full.bytes() - shard.bytes(), offset_of(rank_, counts));
  }

  void all_reduce(Stream& stream, Tag tag, Tensor out, Tensor in) override {
    MUO_CHECK(out && in && out.numel() == in.numel(), "all_reduce of ", in.numel(), " into ",
              out.numel(), " elements");
    check_same_dtype(out, in);
    MUO_CHECK(can_add(in.dtype, out.dtype), "all_reduce of ", name_of(in.dtype));
    submit(stream, {CollectiveKind::kAllReduce, tag}, out, in, {}, 2 * others(in.bytes()), 0);
  }

  void reduce(Stream& stream, Tag tag, Tensor out, Tensor in, int root) override {
    check_root(root);
    MUO_CHECK(in && can_add(in.dtype, in.dtype), "reduce of ", name_of(in.dtype));
    if (rank_ == root) {
      MUO_CHECK(out && out.numel() == in.numel(), "reduce of ", in.numel(), " into ", out.numel(),
                " elements");
      MUO_CHECK(can_add(in.dtype, out.dtype), "reduce of ", name_of(in.dtype), " into ",
                name_of(out.dtype));
    }
    submit(stream, {CollectiveKind::kReduce, tag, 0, {}, {}, root}, rank_ == root ? out : Tensor{},
           in, {}, world() == 1 ? 0 : in.bytes());
  }

  void broadcast(Stream& stream, Tag tag, Tensor values, int root) override {
    check_root(root);
    MUO_CHECK(values, "nothing to broadcast");
    const bool source = rank_ == root;
    submit(stream, {CollectiveKind::kBroadcast, tag, 0, {}, {}, root}, source ? Tensor{} : values,
           source ? values : Tensor{}, {}, world() == 1 ? 0 : values.bytes());
  }

  void gather(Stream& stream, Tag tag, Tensor full, Tensor part,
              std::span<const std::int64_t> counts, int root) override {
    check_root(root);
    check_parts(full, part, counts, rank_ == root);
    if (rank_ == root) check_same_dtype(full, part);
    submit(stream, {CollectiveKind::kGather, tag, 0, {}, {}, root}, rank_ == root ? full : Tensor{},
           part, counts, rank_ == root ? full.bytes() - part.bytes() : part.bytes());
  }

  void scatter(Stream& stream, Tag tag, Tensor part, Tensor full,
               std::span<const std::int64_t> counts, int root) override {
    check_root(root);
    check_parts(full, part, counts, rank_ == root);
    if (rank_ == root) check_same_dtype(full, part);
    submit(stream, {CollectiveKind::kScatter, tag, 0, {}, {}, root}, part,
           rank_ == root ? full : Tensor{}, counts,
           rank_ == root ? full.bytes() - part.bytes() : part.bytes());
  }

  void all_to_all(Stream& stream, Tag tag, Tensor out, Tensor in) override {
    MUO_CHECK(out && in && out.numel() == in.numel() && in.numel() % world() == 0, "all_to_all of ",
              in.numel(), " into ", out.numel(), " elements on ", world(), " ranks");
    check_same_dtype(out, in);
    submit(stream, {CollectiveKind::kAllToAll, tag}, out, in, {}, others(in.bytes()));
  }

 private:
  // What is not this rank's own share of `bytes`.
  [[nodiscard]] std::int64_t others(std::int64_t bytes) const {
    return bytes * (world() - 1) / world();
  }
  void check_root(int root) const {
    MUO_CHECK(0 <= root && root < world(), "root ", root, " of ", world(), " ranks");
  }
  static void check_same_dtype(const Tensor& a, const Tensor& b) {
    MUO_CHECK(a.dtype == b.dtype, name_of(a.dtype), " and ", name_of(b.dtype), " in a collective");
  }
  void check_segments(const Tensor& full, const Tensor& shard) const {
    MUO_CHECK(full && shard && full.numel() == shard.numel() * world(), "segments of ",
              shard.numel(), " and a whole of ", full.numel(), " elements on ", world(), " ranks");
  }
  void check_parts(const Tensor& full, const Tensor& part, std::span<const std::int64_t> counts,
                   bool has_full) const {
    MUO_CHECK(counts.size() == group_.posts.size(), counts.size(), " counts on ", world(),
              " ranks");
    for (const std::int64_t n : counts)
      MUO_CHECK(n >= 0, "a part of ", n, " elements");
    MUO_CHECK(part && part.numel() == counts[static_cast<std::size_t>(rank_)], "a part of ",
              part.numel(), " elements where the counts say ",
              counts[static_cast<std::size_t>(rank_)]);
    const std::int64_t sum = offset_of(world(), counts);
    MUO_CHECK(!has_full || (full && full.numel() == sum), "a whole of ", full.numel(),
              " elements where the counts sum to ", sum);
  }
  static std::int64_t offset_of(int rank, std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  }

  // `own_place`: the element of `out` at which `in` may lie.
  void submit(Stream& stream, CollectivePost post, const Tensor& out, const Tensor& in,
              std::span<const std::int64_t> counts, std::int64_t wire_bytes,
              std::int64_t own_place = -1) {
    const Tensor& any = in ? in : out;
    post.count = counts.empty() ? std::max(in ? in.numel() : 0, out ? out.numel() : 0)
                                : offset_of(world(), counts);
    post.dtype = any.dtype;
    // Of the others all agree, ranks without an output too; a reduce's only the root knows.
    const bool converts =
        post.kind == CollectiveKind::kReduceScatter || post.kind == CollectiveKind::kReduce;
    post.out_dtype = converts && out ? out.dtype : any.dtype;
    post.in = in.data;
    post.out = out.data;
    const bool in_place = own_place >= 0 && in.data == out.data + own_place * size_of(out.dtype);
    MUO_CHECK(in_place || !overlap(out, in), name_of(post.kind), " with tag ", post.tag,
              ": the output overlaps the input");
    std::array<Access, 2> accesses;
    std::size_t touched = 0;
    if (out) accesses[touched++] = {out.data, out.bytes(), true};
    if (in) accesses[touched++] = {in.data, in.bytes(), false};
    stream.enqueue_host(
        concat(name_of(post.kind), " #", post.tag), {accesses.data(), touched},
        [this, post, parts = std::vector<std::int64_t>(counts.begin(), counts.end()), wire_bytes] {
          CollectivePost mine = post;
          mine.counts = parts;
          run(mine);
          bytes_sent_ += wire_bytes;
        });
  }

  void run(const CollectivePost& mine) {
    group_.posts[static_cast<std::size_t>(rank_)] = mine;
    if (world() > 1) group_.rendezvous.arrive([this] { check_paired(); }, kSite);
    if (!group_.mispaired.empty()) throw Error(group_.mispaired);
    if (group_.faults.before_reading) group_.faults.before_reading(rank_);
    move(mine);
    if (!group_.faults.skip_exit_barrier) meet();  // nobody leaves while a peer reads its buffers
  }

  void meet() {
    if (world() > 1) group_.rendezvous.arrive({}, kSite);
  }

  // By one rank for all: a rank that throws takes its post's counts with it.
  void check_paired() {
    const auto& posts = group_.posts;
    group_.mispaired.clear();
    for (std::size_t peer = 1; peer < posts.size() && group_.mispaired.empty(); ++peer)
      if (!pairs_with(posts[0], posts[peer]))
        group_.mispaired = concat("collectives are mispaired: rank 0 enters ", text(posts[0]),
                                  ", rank ", peer, " enters ", text(posts[peer]));
  }

  [[nodiscard]] const CollectivePost& peer(int rank) const {
    return group_.posts[static_cast<std::size_t>(rank)];
  }

  void move(const CollectivePost& mine) {
    switch (mine.kind) {
      case CollectiveKind::kReduceScatter:
        return add(mine, mine.out, mine.count / world() * rank_, mine.count / world());
      case CollectiveKind::kAllGather:
      case CollectiveKind::kAllGatherV:
        return gather_all(mine);
      case CollectiveKind::kAllReduce:
        return sum_everywhere(mine);
      case CollectiveKind::kReduce: {
        // Every rank adds its share, straight into the root's buffer.
        const auto [begin, count] = share(rank_, mine.count);
        const CollectivePost& root = peer(mine.root);
        return add(root, root.out + begin * size_of(root.out_dtype), begin, count);
      }
      case CollectiveKind::kBroadcast:
        if (rank_ != mine.root) copy(mine, mine.out, 0, peer(mine.root).in, 0, mine.count);
        return;
      case CollectiveKind::kGather:
        return copy(mine, peer(mine.root).out, offset_of(rank_, mine.counts), mine.in, 0,
                    mine.counts[static_cast<std::size_t>(rank_)]);
      case CollectiveKind::kScatter:
        return copy(mine, mine.out, 0, peer(mine.root).in, offset_of(rank_, mine.counts),
                    mine.counts[static_cast<std::size_t>(rank_)]);
      case CollectiveKind::kAllToAll: {
        const std::int64_t segment = mine.count / world();
        for (int p = 0; p < world(); ++p)
          copy(mine, mine.out, p * segment, peer(p).in, rank_ * segment, segment);
        return;
      }
    }
  }

  void gather_all(const CollectivePost& mine) {
    std::int64_t offset = 0;
    for (int p = 0; p < world(); ++p) {
      const std::int64_t count =
          mine.counts.empty() ? mine.count / world() : mine.counts[static_cast<std::size_t>(p)];
      copy(mine, mine.out, offset, peer(p).in, 0, count);
      offset += count;
    }
  }

  // Each rank sums its share into its own output, then all copy the others' shares. In place this
  // is safe: a rank's share of anybody's input is read by that rank alone.
  void sum_everywhere(const CollectivePost& mine) {
    const auto [begin, count] = share(rank_, mine.count);
    add(mine, mine.out + begin * size_of(mine.dtype), begin, count);
    meet();
    for (int p = 0; p < world(); ++p) {
      const auto [first, n] = share(p, mine.count);
      copy(mine, mine.out, first, peer(p).out, first, n);
    }
  }

  [[nodiscard]] std::pair<std::int64_t, std::int64_t> share(int rank, std::int64_t count) const {
    const std::int64_t begin = count * rank / world();
    return {begin, count * (rank + 1) / world() - begin};
  }

  // out <- sum of elements [begin, begin + count) of every rank's input.
  void add(const CollectivePost& mine, std::byte* out, std::int64_t begin, std::int64_t count) {
    for (std::size_t p = 0; p < inputs_.size(); ++p)
      inputs_[p] = group_.posts[p].in + begin * size_of(mine.dtype);
    add_ranks(inputs_, mine.dtype, out, mine.out_dtype, count);
  }

  static void copy(const CollectivePost& mine, std::byte* to, std::int64_t to_element,
                   const std::byte* from, std::int64_t from_element, std::int64_t count) {
    const std::int64_t size = size_of(mine.dtype);
    std::byte* target = to + to_element * size;
    const std::byte* source = from + from_element * size;
    if (target != source) std::memcpy(target, source, static_cast<std::size_t>(count * size));
  }

  HostCommunicatorGroup& group_;
  int rank_;
  std::vector<const std::byte*> inputs_;
  std::int64_t bytes_sent_ = 0;
};

class HostCommunicators final : public CommunicatorGroup {
 public:
  HostCommunicators(int world, Rendezvous& rendezvous) : group_(world, rendezvous) {}
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    return make_host_communicator(group_, device.rank());
  }
  void abort() noexcept override { group_.rendezvous.break_all(); }

 private:
  HostCommunicatorGroup group_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank) {
  return std::make_unique<HostCommunicator>(group, rank);
}

std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous) {
  return std::make_unique<HostCommunicators>(world, rendezvous);
}

}  // namespace muo
