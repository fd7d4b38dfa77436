#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "runtime/comm/communicator.h"

namespace muo {

enum class CollectiveKind : std::uint8_t {
  kReduceScatter,
  kAllGather,
  kAllGatherV,
  kAllReduce,
  kReduce,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
};
constexpr auto names_of(CollectiveKind) {
  return name_list("reduce_scatter", "all_gather", "all_gather_v", "all_reduce", "reduce",
                   "broadcast", "gather", "scatter", "all_to_all");
}

constexpr bool is_sum(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduce;
}

// One rank's call of a collective, checked and normalised.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Tag tag = 0;
  int root = -1;           // -1: none
  std::int64_t count = 0;  // elements of the whole vector, the same on every rank
  DType dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  // Elements per rank of the variable-size collectives, else empty. Owned by the caller: copy them
  // to keep the collective.
  std::span<const std::int64_t> counts = {};
  Tensor out = {}, in = {};     // absent where this rank has none
  std::int64_t wire_bytes = 0;  // added to Communicator::bytes_sent()

  // Name and accesses of its node in a graph: "all_reduce #7".
  [[nodiscard]] std::string node_name() const;
  [[nodiscard]] std::vector<Access> accesses() const;
  // "all_reduce with tag 7 of 12 fp32", for messages.
  [[nodiscard]] std::string text() const;
  // True if the two are calls of one collective by two ranks.
  [[nodiscard]] bool pairs_with(const Collective& other) const;
};

// Empty if all ranks call the same collective, else a message that names the first rank that
// differs from rank 0.
std::string mispairing(std::span<const Collective> by_rank);
std::string mispaired_text(const std::string& of_rank_0, int peer, const std::string& of_peer);

// Elements [first, first + count) that a rank works on when a vector is divided among ranks.
struct Share {
  std::int64_t first = 0, count = 0;
};
inline Share share_of(int rank, int world, std::int64_t count) {
  const std::int64_t first = count * rank / world;
  return {first, count * (rank + 1) / world - first};
}
// Offset of a rank's part in the concatenation of all parts.
std::int64_t offset_of(int rank, std::span<const std::int64_t> counts);

// Base of all communicators: checks arguments as communicator.h promises, before anything is sent,
// and turns each call into a Collective.
class CheckedCommunicator : public Communicator {
 public:
  CheckedCommunicator(int rank, int world) : rank_(rank), world_(world) {}

  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int world() const final { return world_; }
  void reduce_scatter(Stream& stream, Tag tag, Tensor shard, Tensor full) final;
  void all_gather(Stream& stream, Tag tag, Tensor full, Tensor shard) final;
  void all_gather_v(Stream& stream, Tag tag, Tensor full, Tensor shard,
                    std::span<const std::int64_t> counts) final;
  void all_reduce(Stream& stream, Tag tag, Tensor out, Tensor in) final;
  void reduce(Stream& stream, Tag tag, Tensor out, Tensor in, int root) final;
  void broadcast(Stream& stream, Tag tag, Tensor values, int root) final;
  void gather(Stream& stream, Tag tag, Tensor full, Tensor part,
              std::span<const std::int64_t> counts, int root) final;
  void scatter(Stream& stream, Tag tag, Tensor part, Tensor full,
               std::span<const std::int64_t> counts, int root) final;
  void all_to_all(Stream& stream, Tag tag, Tensor out, Tensor in) final;
  void mute(bool muted) final { muted_ = muted; }

 protected:
  // Eager, or captured if `stream` captures. Tensors and numbers may be kept, `collective.counts`
  // may not.
  virtual void enqueue(Stream& stream, const Collective& collective) = 0;

 private:
  [[nodiscard]] std::int64_t others(std::int64_t bytes) const;
  void check_root(int root) const;
  void check_segments(const Tensor& full, const Tensor& shard) const;
  void check_parts(const Tensor& full, const Tensor& part, std::span<const std::int64_t> counts,
                   bool has_full) const;
  void finish(Stream& stream, Collective collective, std::optional<std::int64_t> own_offset = {});

  const int rank_;
  const int world_;
  bool muted_ = false;
};

}  // namespace muo
