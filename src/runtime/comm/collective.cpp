#include "runtime/comm/collective.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "runtime/profile_range.h"

namespace muo {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  return a.numel() > 0 && b.numel() > 0 && a.data < b.data + b.bytes() &&
         b.data < a.data + a.bytes();
}

bool can_add(DType in, DType out) {
  return in != DType::kBytes && (in == out || (in == DType::kBF16 && out == DType::kF32));
}

void check_same_dtype(const Tensor& a, const Tensor& b) {
  MUO_CHECK(a.dtype == b.dtype, name_of(a.dtype), " and ", name_of(b.dtype), " in a collective");
}

}  // namespace

std::string Collective::node_name() const { return concat(name_of(kind), " #", tag); }

std::vector<Access> Collective::accesses() const {
  std::vector<Access> all;
  if (out) all.push_back(access_of(out, true));
  if (in) all.push_back(access_of(in, false));
  return all;
}

std::string Collective::text() const {
  std::string out_text =
      concat(name_of(kind), " with tag ", tag, " of ", count, " ", name_of(dtype));
  if (out_dtype != dtype) out_text += concat(" into ", name_of(out_dtype));
  if (root >= 0) out_text += concat(" at root ", root);
  if (!counts.empty()) {
    out_text += " in parts of";
    for (const std::int64_t n : counts)
      out_text += concat(" ", n);
  }
  return out_text;
}

bool Collective::pairs_with(const Collective& other) const {
  return kind == other.kind && tag == other.tag && count == other.count && dtype == other.dtype &&
         (out_dtype == other.out_dtype || kind == CollectiveKind::kReduce) && root == other.root &&
         std::equal(counts.begin(), counts.end(), other.counts.begin(), other.counts.end());
}

std::string mispairing(std::span<const Collective> by_rank) {
  for (std::size_t peer = 1; peer < by_rank.size(); ++peer)
    if (!by_rank[0].pairs_with(by_rank[peer]))
      return mispaired_text(by_rank[0].text(), static_cast<int>(peer), by_rank[peer].text());
  return {};
}

std::string mispaired_text(const std::string& of_rank_0, int peer, const std::string& of_peer) {
  return concat("collectives are mispaired: rank 0 enters ", of_rank_0, ", rank ", peer, " enters ",
                of_peer);
}

std::int64_t offset_of(int rank, std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

void CheckedCommunicator::reduce_scatter(Stream& stream, Tag tag, Tensor shard, Tensor full) {
  check_segments(full, shard);
  MUO_CHECK(can_add(full.dtype, shard.dtype), "reduce_scatter of ", name_of(full.dtype), " into ",
            name_of(shard.dtype));
  finish(stream,
         {.kind = CollectiveKind::kReduceScatter,
          .tag = tag,
          .out = shard,
          .in = full,
          .wire_bytes = others(full.bytes())},
         -rank_ * shard.numel());
}

void CheckedCommunicator::all_gather(Stream& stream, Tag tag, Tensor full, Tensor shard) {
  check_segments(full, shard);
  check_same_dtype(full, shard);
  finish(stream,
         {.kind = CollectiveKind::kAllGather,
          .tag = tag,
          .out = full,
          .in = shard,
          .wire_bytes = others(full.bytes())},
         rank_ * shard.numel());
}

void CheckedCommunicator::all_gather_v(Stream& stream, Tag tag, Tensor full, Tensor shard,
                                       std::span<const std::int64_t> counts) {
  check_parts(full, shard, counts, true);
  check_same_dtype(full, shard);
  finish(stream,
         {.kind = CollectiveKind::kAllGatherV,
          .tag = tag,
          .counts = counts,
          .out = full,
          .in = shard,
          .wire_bytes = full.bytes() - shard.bytes()},
         offset_of(rank_, counts));
}

void CheckedCommunicator::all_reduce(Stream& stream, Tag tag, Tensor out, Tensor in) {
  MUO_CHECK(out && in && out.numel() == in.numel(), "all_reduce of ", in.numel(), " into ",
            out.numel(), " elements");
  check_same_dtype(out, in);
  MUO_CHECK(can_add(in.dtype, out.dtype), "all_reduce of ", name_of(in.dtype));
  finish(stream,
         {.kind = CollectiveKind::kAllReduce,
          .tag = tag,
          .out = out,
          .in = in,
          .wire_bytes = 2 * others(in.bytes())},
         0);
}

void CheckedCommunicator::reduce(Stream& stream, Tag tag, Tensor out, Tensor in, int root) {
  check_root(root);
  MUO_CHECK(in && can_add(in.dtype, in.dtype), "reduce of ", name_of(in.dtype));
  if (rank_ == root) {
    MUO_CHECK(out && out.numel() == in.numel(), "reduce of ", in.numel(), " into ", out.numel(),
              " elements");
    MUO_CHECK(can_add(in.dtype, out.dtype), "reduce of ", name_of(in.dtype), " into ",
              name_of(out.dtype));
  }
  finish(stream, {.kind = CollectiveKind::kReduce,
                  .tag = tag,
                  .root = root,
                  .out = rank_ == root ? out : Tensor{},
                  .in = in,
                  .wire_bytes = world_ == 1 ? 0 : in.bytes()});
}

void CheckedCommunicator::broadcast(Stream& stream, Tag tag, Tensor values, int root) {
  check_root(root);
  MUO_CHECK(values, "broadcast of an absent tensor");
  const bool source = rank_ == root;
  finish(stream, {.kind = CollectiveKind::kBroadcast,
                  .tag = tag,
                  .root = root,
                  .out = source ? Tensor{} : values,
                  .in = source ? values : Tensor{},
                  .wire_bytes = world_ == 1 ? 0 : values.bytes()});
}

void CheckedCommunicator::gather(Stream& stream, Tag tag, Tensor full, Tensor part,
                                 std::span<const std::int64_t> counts, int root) {
  check_root(root);
  check_parts(full, part, counts, rank_ == root);
  if (rank_ == root) check_same_dtype(full, part);
  finish(stream, {.kind = CollectiveKind::kGather,
                  .tag = tag,
                  .root = root,
                  .counts = counts,
                  .out = rank_ == root ? full : Tensor{},
                  .in = part,
                  .wire_bytes = rank_ == root ? full.bytes() - part.bytes() : part.bytes()});
}

void CheckedCommunicator::scatter(Stream& stream, Tag tag, Tensor part, Tensor full,
                                  std::span<const std::int64_t> counts, int root) {
  check_root(root);
  check_parts(full, part, counts, rank_ == root);
  if (rank_ == root) check_same_dtype(full, part);
  finish(stream, {.kind = CollectiveKind::kScatter,
                  .tag = tag,
                  .root = root,
                  .counts = counts,
                  .out = part,
                  .in = rank_ == root ? full : Tensor{},
                  .wire_bytes = rank_ == root ? full.bytes() - part.bytes() : part.bytes()});
}

void CheckedCommunicator::all_to_all(Stream& stream, Tag tag, Tensor out, Tensor in) {
  MUO_CHECK(out && in && out.numel() == in.numel() && in.numel() % world_ == 0, "all_to_all of ",
            in.numel(), " into ", out.numel(), " elements on ", world_, " ranks");
  check_same_dtype(out, in);
  finish(stream, {.kind = CollectiveKind::kAllToAll,
                  .tag = tag,
                  .out = out,
                  .in = in,
                  .wire_bytes = others(in.bytes())});
}

// `bytes` less this rank's own share.
std::int64_t CheckedCommunicator::others(std::int64_t bytes) const {
  return bytes * (world_ - 1) / world_;
}

void CheckedCommunicator::check_root(int root) const {
  MUO_CHECK(0 <= root && root < world_, "root ", root, " of ", world_, " ranks");
}

void CheckedCommunicator::check_segments(const Tensor& full, const Tensor& shard) const {
  MUO_CHECK(full && shard && full.numel() == shard.numel() * world_, "segments of ", shard.numel(),
            " and a full tensor of ", full.numel(), " elements on ", world_, " ranks");
}

void CheckedCommunicator::check_parts(const Tensor& full, const Tensor& part,
                                      std::span<const std::int64_t> counts, bool has_full) const {
  MUO_CHECK(counts.size() == static_cast<std::size_t>(world_), counts.size(), " counts for ",
            world_, " ranks");
  for (const std::int64_t n : counts)
    MUO_CHECK(n >= 0, "a part of ", n, " elements");
  const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
  MUO_CHECK(part && part.numel() == own, "a part of ", part.numel(), " elements, but its count is ",
            own);
  const std::int64_t sum = offset_of(world_, counts);
  MUO_CHECK(!has_full || (full && full.numel() == sum), "a full tensor of ", full.numel(),
            " elements, but the counts sum to ", sum);
}

// `own_offset`: element of `out` at which `in` may lie; negative if `out` may lie within `in`.
void CheckedCommunicator::finish(Stream& stream, Collective collective,
                                 std::optional<std::int64_t> own_offset) {
  const Tensor& out = collective.out;
  const Tensor& in = collective.in;
  const Tensor& any = in ? in : out;
  collective.count = collective.counts.empty()
                         ? std::max(in ? in.numel() : 0, out ? out.numel() : 0)
                         : offset_of(world_, collective.counts);
  collective.dtype = any.dtype;
  // All ranks can tell dtype by their input or output; the output's dtype of a reduce is known to
  // the root alone.
  const bool converts = collective.kind == CollectiveKind::kReduceScatter ||
                        collective.kind == CollectiveKind::kReduce;
  collective.out_dtype = converts && out ? out.dtype : any.dtype;
  const bool in_place =
      own_offset && in.dtype == out.dtype && in.data == out.data + *own_offset * size_of(out.dtype);
  MUO_CHECK(in_place || !overlap(out, in), name_of(collective.kind), " with tag ", collective.tag,
            ": the output overlaps the input");
  if (muted_) return;
  const ProfileRange range(ProfileKind::kCollective, ProfileRange::Payload{collective.wire_bytes},
                           name_of(collective.kind), " #", collective.tag);
  if (!stream.is_host()) stream.add_node(collective.node_name(), collective.accesses());
  enqueue(stream, collective);
}

}  // namespace muo
