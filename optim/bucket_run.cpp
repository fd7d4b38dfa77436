#include "optim/bucket_run.h"

#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/commit.h"
#include "kernels/muon.h"
#include "kernels/reduce.h"
#include "kernels/residual.h"
#include "runtime/profile_range.h"

namespace muo {

BucketRun::BucketRun(const RankContext& rank, const Bucket& bucket, const OptimizerVersion& version,
                     const NewtonSchulzForm& form, std::span<const ParamSpec> params, Arena& arena,
                     const GradientMemory& gradients, Tensor scalars, Tensor found,
                     ValueIndexBases bases)
    : bucket_(bucket),
      version_(version),
      form_(form),
      params_(params),
      communicator_(rank.communicator),
      rank_(rank.rank),
      world_(rank.world),
      scalars_(scalars),
      found_(found),
      bases_(bases),
      full_({0, bucket.full_elements()}) {
  const std::int64_t full = bucket.full_elements();
  for (const Range block : blocks(bucket))
    segment_.add(segment_of_block(bucket, block, rank_));
  compute_ =
      bucket.exchange == Exchange::kAllGather ? full_ : ElementRanges(owner_range(bucket, rank_));
  state_ = bucket.state == StateAt::kElements ? segment_ : compute_;
  const auto run = [&](const char* what, std::int64_t n, MemoryCategory category,
                       DType dtype = DType::kF32) {
    return arena.tensor({.name = bucket.name + what,
                         .shape = {n},
                         .dtype = dtype,
                         .category = category,
                         .lifespan = Lifespan::kRun});
  };
  const bool converted = world_ > 1 && bucket.weight_wire != bucket.replica_dtype;
  weights_ = arena.tensor({.name = bucket.name + ".weights",
                           .shape = {full},
                           .dtype = bucket.replica_dtype,
                           .category = MemoryCategory::kWeights,
                           .lifespan = Lifespan::kRun,
                           .common = bucket.replica == ReplicaAt::kCommon});
  if (converted || bucket.replica_dtype != DType::kF32)
    master_ = run(".master", state_.size(), MemoryCategory::kMasters);
  if (converted)
    weight_wire_ = arena.tensor({.name = bucket.name + ".weight_wire",
                                 .shape = {full},
                                 .dtype = bucket.weight_wire,
                                 .category = MemoryCategory::kStaging});
  allocate_gradients(arena, gradients);
  find_pieces();
  if (bucket.rule == UpdateRule::kAdamW) {
    adam_m_ = run(".adam_m", state_.size(), MemoryCategory::kAdamState, bucket.adam_dtype);
    adam_v_ = run(".adam_v", state_.size(), MemoryCategory::kAdamState, bucket.adam_dtype);
  } else {
    momentum_ = run(".momentum", state_.size(), MemoryCategory::kMomentum);
    allocate_muon(arena);
  }
}

void BucketRun::allocate_gradients(Arena& arena, const GradientMemory& memory) {
  const std::int64_t full = full_.size();
  const bool alone = world_ == 1 || bucket_.reduction == Reduction::kAllReduce;
  const bool narrow = world_ > 1 && bucket_.gradient_wire != DType::kF32;
  reduced_ranges_ = alone ? full_ : segment_;
  if (memory.whole) {
    gradient_ = memory.whole.elements(0, full);
    addend_ = memory.addend.elements(0, reduced_ranges_.size());
    if (narrow) gradient_wire_ = memory.wire.elements(0, full);
    reduced_ = arena.tensor({.name = bucket_.name + ".gradient_sum",
                             .shape = {reduced_ranges_.size()},
                             .category = MemoryCategory::kGradients,
                             .lifespan = memory.sums});
    return;
  }
  gradient_ = arena.tensor({.name = bucket_.name + ".gradient",
                            .shape = {full},
                            .category = MemoryCategory::kGradients,
                            .lifespan = memory.sums});
  reduced_ = alone ? gradient_
                   : arena.tensor({.name = bucket_.name + ".reduced",
                                   .shape = {segment_.size()},
                                   .category = MemoryCategory::kStaging});
  if (narrow)
    gradient_wire_ = arena.tensor({.name = bucket_.name + ".gradient_wire",
                                   .shape = {full},
                                   .dtype = bucket_.gradient_wire,
                                   .category = MemoryCategory::kStaging});
}

bool BucketRun::is_local(const Unit& unit) const {
  return bucket_.compute == ComputeAt::kEveryRank || unit.owner == rank_;
}

void BucketRun::find_pieces() {
  for (const Unit& unit : bucket_.units) {
    if (bucket_.state != StateAt::kElements && !is_local(unit)) continue;
    const Shape& shape = params_[unit.param].shape;
    const double rate = bucket_.rule == UpdateRule::kMuon ? muon_rate(shape[0], shape[1]) : 1.0;
    for (const Range held : state_.within(unit_range(unit))) {
      if (!pieces_.empty() && pieces_.back().range.end == held.begin &&
          !(pieces_.back().rate < rate || rate < pieces_.back().rate) &&
          pieces_.back().adam_group == unit.adam_group)
        pieces_.back().range.end = held.end;
      else
        pieces_.push_back({.range = held, .rate = rate, .adam_group = unit.adam_group});
    }
  }
}

Tensor BucketRun::weight(const Unit& unit, std::int64_t count) const {
  return weights_.elements(unit.offset, count);
}

Tensor BucketRun::gradient(const Unit& unit, std::int64_t count) const {
  return gradient_.elements(unit.offset, count);
}

void BucketRun::zero_padding(Stream& stream) const {
  std::int64_t end = 0;
  const auto zero_until = [&](std::int64_t begin) {
    if (end < begin) stream.zero(full_.part(gradient_, {end, begin}));
  };
  for (const Unit& unit : bucket_.units) {
    zero_until(unit.offset);
    end = unit_range(unit).end;
  }
  zero_until(gradient_.numel());
}

void BucketRun::reduce(Stream& comm, Tag tag, bool first) const {
  if (world_ == 1) return;
  const ProfileRange phase(ProfileKind::kPhase, "reduce ", bucket_.name);
  const Tensor all = sent(comm, gradient_, gradient_wire_);
  const Tensor& out = first ? reduced_ : addend_;
  switch (bucket_.reduction) {
    case Reduction::kAllReduce:
      communicator_.all_reduce(comm, tag, gradient_wire_ ? all : out, all);
      if (gradient_wire_) cast(comm, {.y = out, .x = all});
      break;
    case Reduction::kReduceScatter:
      for (const Range block : blocks(bucket_)) {
        const Range own = segment_of_block(bucket_, block, rank_);
        communicator_.reduce_scatter(comm, tag++, reduced_ranges_.part(out, own),
                                     full_.part(all, block));
      }
      break;
    case Reduction::kReduceToOwner:
      for (int r = 0; r < world_; ++r, ++tag) {
        const Range to = segment_range(bucket_, r);
        if (to.size() == 0) continue;
        communicator_.reduce(comm, tag, r == rank_ ? out : Tensor{}, full_.part(all, to), r);
      }
      break;
  }
  if (!first && addend_.numel() > 0) add(comm, {.y = reduced_, .x = addend_});
}

void BucketRun::add_squares(Stream& update, Tensor total) const {
  const ProfileRange phase(ProfileKind::kPhase, "update ", bucket_.name);
  Tensor counted = reduced_;
  std::int64_t first = 0;
  if (bucket_.reduction == Reduction::kAllReduce) {  // all hold it: each counts an equal part
    const std::int64_t n = reduced_.numel();
    first = n * rank_ / world_;
    counted = full_.part(reduced_, {first, n * (rank_ + 1) / world_});
  }
  sum_squares(update, {.out = total, .x = counted, .accumulate = true});
  note_nonfinite(
      update, {.found = found_, .x = counted, .squares = total, .base = bases_.gradients + first});
}

void BucketRun::commit(Stream& update) const {
  const ProfileRange phase(ProfileKind::kPhase, "commit ", bucket_.name);
  for (const Piece& piece : pieces_) {
    const Tensor grad = reduced_ranges_.part(reduced_, piece.range);
    if (bucket_.rule == UpdateRule::kAdamW)
      adamw(update, {.weight = master(piece.range),
                     .replica = committed_replica(piece.range),
                     .m = state_.part(adam_m_, piece.range),
                     .v = state_.part(adam_v_, piece.range),
                     .grad = grad,
                     .scalars = scalars_,
                     .group = piece.adam_group});
    else
      muon_commit(update, {.weight = master(piece.range),
                           .replica = committed_replica(piece.range),
                           .momentum = state_.part(momentum_, piece.range),
                           .u = returned_ ? segment_.part(returned_, piece.range)
                                          : compute_.part(u_, piece.range),
                           .grad = grad,
                           .scalars = scalars_,
                           .rate = piece.rate});
  }
  if (!version_.factored_variance) return;
  for (const Batch& batch : batches_)
    muon_commit(
        update,
        {.variance = batch.variance, .new_variance = batch.new_variance, .scalars = scalars_});
}

Tensor BucketRun::master(Range range) const {
  return master_ ? state_.part(master_, range) : full_.part(weights_, range);
}

Tensor BucketRun::committed_replica(Range range) const {
  return master_ && !weight_wire_ ? full_.part(weights_, range) : Tensor{};
}

void BucketRun::refresh_replica(Stream& stream) const {
  if (!master_ || weight_wire_) return;
  for (const Range range : state_.ranges())
    cast(stream, {.y = full_.part(weights_, range), .x = master(range)});
}

void BucketRun::publish(Stream& comm) const {
  if (world_ == 1 || bucket_.publish == Publish::kNone) return;
  const ProfileRange phase(ProfileKind::kPhase, "gather ", bucket_.name);
  if (bucket_.replica == ReplicaAt::kCommon) {  // all wait until all have committed
    const Tensor nothing = weights_.elements(0, 0);
    return communicator_.all_gather(comm, bucket_.publish_tag, nothing, nothing);
  }
  const Tensor all = weight_wire_ ? weight_wire_ : weights_;
  if (weight_wire_) {
    for (const Range range : segment_.ranges())  // padding is sent too: not what shared memory held
      comm.zero(full_.part(all, range));
    for (const Range range : state_.ranges())
      cast(comm, {.y = full_.part(all, range), .x = master(range)});
  }
  Tag tag = bucket_.publish_tag;
  for (const Range block : blocks(bucket_)) {
    const Tensor own = full_.part(all, segment_of_block(bucket_, block, rank_));
    if (bucket_.publish == Publish::kAllGather)
      communicator_.all_gather(comm, tag++, full_.part(all, block), own);
    else
      communicator_.all_gather_v(comm, tag++, full_.part(all, block), own, bucket_.segments);
  }
  if (weight_wire_) cast(comm, {.y = weights_, .x = weight_wire_});
}

void BucketRun::append_state(std::vector<StateEntry>& entries) const {
  const bool writer = bucket_.state != StateAt::kEveryRank || rank_ == 0;
  for (const Unit& unit : bucket_.units) {
    if (bucket_.state != StateAt::kElements && !is_local(unit)) continue;
    const ParamSpec& param = params_[unit.param];
    for (const Range held : state_.within(unit_range(unit))) {
      const auto add = [&](const char* suffix, const Tensor& values) {
        entries.push_back({.name = param.name + suffix,
                           .shape = param.shape,
                           .begin = unit.begin + held.begin - unit.offset,
                           .values = values,
                           .writer = writer});
      };
      add("", master(held));
      if (bucket_.rule == UpdateRule::kAdamW) {
        add(".adam_m", state_.part(adam_m_, held));
        add(".adam_v", state_.part(adam_v_, held));
      } else {
        add(".momentum", state_.part(momentum_, held));
      }
    }
  }
  append_variances(entries);
}

void BucketRun::append_variances(std::vector<StateEntry>& entries) const {
  if (!version_.factored_variance) return;
  const bool writer = bucket_.compute == ComputeAt::kOwner || rank_ == 0;
  for (const Batch& batch : batches_)
    for (std::int64_t i = 0; i < batch.count; ++i) {
      const Unit& unit = bucket_.units[batch.first_unit + static_cast<std::size_t>(i)];
      const Tensor values = batch.variance.row(i);
      entries.push_back({.name = params_[unit.param].name + ".variance",
                         .shape = values.shape,
                         .begin = 0,
                         .values = values,
                         .writer = writer});
    }
}

}  // namespace muo
