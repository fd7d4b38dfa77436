#include "optim/bucket_tensors.h"

#include "kernels/cast.h"
#include "kernels/commit.h"
#include "kernels/reduce.h"
#include "kernels/residual.h"
#include "runtime/profile_range.h"

namespace muo::optim {

BucketRanges::BucketRanges(const Bucket& bucket, int rank, int world)
    : full({0, bucket.full_elements()}) {
  for (const Range block : blocks(bucket))
    segment.add(segment_of_block(bucket, block, rank));
  compute =
      bucket.exchange == Exchange::kAllGather ? full : ElementRanges(owner_range(bucket, rank));
  state = bucket.state == StateAt::kElements ? segment : compute;
  reduced = world == 1 || bucket.reduction == Reduction::kAllReduce ? full : segment;
}

BucketTensors::BucketTensors(const RankContext& rank, const Bucket& bucket, Arena& arena,
                             const GradientMemory& gradients)
    : bucket_(bucket),
      communicator_(rank.communicator),
      rank_(rank.rank),
      world_(rank.world),
      ranges_(bucket, rank.rank, rank.world) {
  const bool sharded = bucket.replica == ReplicaAt::kSharded;
  const DType held = sharded ? bucket.weight_wire : bucket.replica_dtype;
  const bool converted = world_ > 1 && bucket.weight_wire != held;
  replica_ranges_ = sharded ? ranges_.segment : ranges_.full;
  weights_ = arena.tensor({.name = bucket.name + ".weights",
                           .shape = {replica_ranges_.size()},
                           .dtype = held,
                           .category = MemoryCategory::kWeights,
                           .lifespan = Lifespan::kRun,
                           .common = bucket.replica == ReplicaAt::kCommon});
  if (converted || held != DType::kF32)
    master_ = arena.tensor({.name = bucket.name + ".master",
                            .shape = {ranges_.state.size()},
                            .dtype = bucket.split_master ? DType::kU16 : DType::kF32,
                            .category = MemoryCategory::kMasters,
                            .lifespan = Lifespan::kRun});
  if (converted)
    weight_wire_ = arena.tensor({.name = bucket.name + ".weight_wire",
                                 .shape = {ranges_.full.size()},
                                 .dtype = bucket.weight_wire,
                                 .category = MemoryCategory::kStaging});
  allocate_gradients(arena, gradients);
}

void BucketTensors::allocate_gradients(Arena& arena, const GradientMemory& memory) {
  const std::int64_t full = ranges_.full.size();
  const std::int64_t reduced = ranges_.reduced.size();
  const bool narrow = world_ > 1 && bucket_.gradient_wire != bucket_.gradient_dtype;
  const auto sum = [&](const char* what, std::int64_t n, DType dtype) {
    return arena.tensor({.name = bucket_.name + what,
                         .shape = {n},
                         .dtype = dtype,
                         .category = MemoryCategory::kGradients,
                         .lifespan = memory.sums});
  };
  if (memory.whole) {
    gradient_ = memory.whole.typed(bucket_.gradient_dtype, full);
    addend_ = memory.addend.elements(0, reduced);
    if (narrow) gradient_wire_ = memory.wire.elements(0, full);
    reduced_ = sum(".gradient_sum", reduced, DType::kF32);
    return;
  }
  gradient_ = sum(".gradient", full, bucket_.gradient_dtype);
  in_place_ = memory.in_place && world_ > 1 && bucket_.reduction == Reduction::kReduceScatter &&
              bucket_.cut == Cut::kWhole;
  if (world_ == 1 || bucket_.reduction == Reduction::kAllReduce)
    reduced_ = gradient_;
  else if (in_place_)
    reduced_ = gradient_.elements(bucket_.segment_begin(rank_), reduced);
  else
    reduced_ = arena.tensor({.name = bucket_.name + ".reduced",
                             .shape = {reduced},
                             .category = MemoryCategory::kStaging});
  if (narrow)
    gradient_wire_ = arena.tensor({.name = bucket_.name + ".gradient_wire",
                                   .shape = {full},
                                   .dtype = bucket_.gradient_wire,
                                   .category = MemoryCategory::kStaging});
}

bool BucketTensors::computes(const Unit& unit) const {
  return optim::computes(bucket_, unit, rank_);
}

bool BucketTensors::holds_state(const Unit& unit) const {
  return bucket_.state == StateAt::kElements || computes(unit);
}

bool BucketTensors::writes_state() const {
  return bucket_.state != StateAt::kEveryRank || rank_ == 0;
}

Tensor BucketTensors::weight(const Unit& unit, std::int64_t count) const {
  return weights_.elements(unit.offset, count);
}

Tensor BucketTensors::gradient(const Unit& unit, std::int64_t count) const {
  return gradient_.elements(unit.offset, count);
}

Tensor BucketTensors::reduced(Range range) const { return ranges_.reduced.slice(reduced_, range); }

Tensor BucketTensors::reduced_by_others(std::int64_t count) const {
  if (!in_place_) return {};
  const std::int64_t begin = bucket_.segment_begin(rank_);
  const std::int64_t end = begin + ranges_.reduced.size();
  if (begin >= count) return gradient_.elements(0, count);
  return ranges_.full.size() - end >= count ? gradient_.elements(end, count) : Tensor{};
}

Tensor BucketTensors::master(Range range) const {
  return master_ ? ranges_.state.slice(master_, range) : replica_ranges_.slice(weights_, range);
}

Tensor BucketTensors::committed_replica(Range range) const {
  return master_ && !weight_wire_ ? replica_ranges_.slice(weights_, range) : Tensor{};
}

void BucketTensors::zero_padding(Stream& stream) const {
  std::vector<Range> units;
  for (const Unit& unit : bucket_.units)
    units.push_back(unit_range(unit));
  zero_outside(stream, gradient_, 0, units);
}

void BucketTensors::reduce(Stream& comm, Tag tag, bool first) const {
  if (world_ == 1) return;
  const ProfileRange phase(ProfileKind::kPhase, "reduce ", bucket_.name);
  const Tensor all = to_wire(comm, gradient_, gradient_wire_);
  const Tensor& out = first ? reduced_ : addend_;
  switch (bucket_.reduction) {
    case Reduction::kAllReduce:
      communicator_.all_reduce(comm, tag, all.dtype == out.dtype ? out : all, all);
      if (all.dtype != out.dtype) cast(comm, {.y = out, .x = all});
      break;
    case Reduction::kReduceScatter:
      for (const Range block : blocks(bucket_)) {
        const Range own = segment_of_block(bucket_, block, rank_);
        communicator_.reduce_scatter(comm, tag++, ranges_.reduced.slice(out, own),
                                     ranges_.full.slice(all, block));
      }
      break;
    case Reduction::kReduceToOwner:
      for (int r = 0; r < world_; ++r, ++tag) {
        const Range to = segment_range(bucket_, r);
        if (to.size() == 0) continue;
        communicator_.reduce(comm, tag, r == rank_ ? out : Tensor{}, ranges_.full.slice(all, to),
                             r);
      }
      break;
  }
  if (!first && addend_.numel() > 0) add(comm, {.y = reduced_, .x = addend_});
}

void BucketTensors::add_squares(Stream& update, Tensor total, Tensor found,
                                std::int64_t base) const {
  const ProfileRange phase(ProfileKind::kPhase, "update ", bucket_.name);
  Tensor counted = reduced_;
  std::int64_t first = 0;
  if (bucket_.reduction == Reduction::kAllReduce) {  // all ranks have it: each counts a part
    const std::int64_t n = reduced_.numel();
    first = n * rank_ / world_;
    counted = ranges_.full.slice(reduced_, {first, n * (rank_ + 1) / world_});
  }
  sum_squares(update, {.out = total, .x = counted, .accumulate = true});
  note_nonfinite(update, {.found = found, .x = counted, .squares = total, .base = base + first});
}

void BucketTensors::publish(Stream& comm) const {
  if (world_ == 1 || publish_collectives(bucket_) == 0) return;
  const ProfileRange phase(ProfileKind::kPhase, "gather ", bucket_.name);
  if (bucket_.replica == ReplicaAt::kCommon) {  // a barrier: all ranks have committed after it
    const Tensor nothing = weights_.elements(0, 0);
    return communicator_.all_gather(comm, bucket_.publish_tag, nothing, nothing);
  }
  const Tensor all = weight_wire_ ? weight_wire_ : weights_;
  if (weight_wire_) {
    for (const Range range :
         ranges_.segment.ranges())  // padding is sent too: clears it of data of other tensors
      comm.zero(ranges_.full.slice(all, range));
    for (const Range range : ranges_.state.ranges())
      cast(comm, {.y = ranges_.full.slice(all, range), .x = master(range)});
  }
  Tag tag = bucket_.publish_tag;
  for (const Range block : blocks(bucket_)) {
    const Tensor out = ranges_.full.slice(all, block);
    const Tensor own = ranges_.full.slice(all, segment_of_block(bucket_, block, rank_));
    if (bucket_.publish == Publish::kAllGather)
      communicator_.all_gather(comm, tag++, out, own);
    else
      communicator_.all_gather_v(comm, tag++, out, own, bucket_.segments);
  }
  if (weight_wire_) cast(comm, {.y = weights_, .x = weight_wire_});
}

void BucketTensors::gather(Stream& comm, Tag tag, Range block, Tensor out,
                           const Tensor& wire) const {
  const ProfileRange phase(ProfileKind::kPhase, "gather ", bucket_.name);
  const Range own = segment_of_block(bucket_, block, rank_);
  const Tensor shard =
      own.size() > 0 ? replica_ranges_.slice(weights_, own) : weights_.elements(0, 0);
  const bool converted = bucket_.weight_wire != bucket_.replica_dtype;
  const Tensor all = converted ? wire.elements(0, block.size()) : out;
  if (bucket_.publish == Publish::kAllGather)
    communicator_.all_gather(comm, tag, all, shard);
  else
    communicator_.all_gather_v(comm, tag, all, shard, bucket_.segments);
  if (converted) cast(comm, {.y = out, .x = all});
}

void BucketTensors::refresh_replica(Stream& stream) const {
  if (!master_ || weight_wire_ || bucket_.split_master) return;
  for (const Range range : ranges_.state.ranges())
    cast(stream, {.y = replica_ranges_.slice(weights_, range), .x = master(range)});
}

Tensor to_wire(Stream& comm, const Tensor& values, const Tensor& wire) {
  if (!wire) return values;
  cast(comm, {.y = wire, .x = values});
  return wire;
}

}  // namespace muo::optim
