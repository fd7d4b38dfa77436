// BucketRun where Newton-Schulz needs more than what a rank holds of a matrix.
#include "kernels/cast.h"
#include "kernels/muon.h"
#include "optim/bucket_run.h"
#include "runtime/profile_range.h"

namespace muo {

void BucketRun::allocate_exchange(Arena& arena) {
  std::int64_t segment = segment_.size();
  std::int64_t compute = compute_.size();
  if (bucket_.exchange == Exchange::kAllToAll) {
    const Range block = blocks(bucket_).front();
    segment = block.size();  // a part of it for every rank, however few the units
    compute = block.size();
  }
  const bool narrow = world_ > 1 && bucket_.gradient_wire != DType::kF32;
  const auto step = [&](const char* what, std::int64_t n,
                        MemoryCategory category = MemoryCategory::kStaging) {
    return arena.tensor({.name = bucket_.name + what, .shape = {n}, .category = category});
  };
  const auto wire = [&](const char* what, std::int64_t n) {
    if (!narrow) return Tensor{};
    return arena.tensor({.name = bucket_.name + what,
                         .shape = {n},
                         .dtype = bucket_.gradient_wire,
                         .category = MemoryCategory::kStaging});
  };
  u_ = step(".u", compute, MemoryCategory::kUpdate);
  nesterov_ = step(".nesterov", segment);
  nesterov_wire_ = wire(".nesterov_wire", segment);
  if (world_ == 1) {
    exchanged_ = segment_.part(nesterov_, compute_.ranges().front());
    return;
  }
  exchanged_ = step(".exchanged", compute);
  exchanged_wire_ = wire(".exchanged_wire", compute);
  if (bucket_.returns == Return::kOwnSlice) return;
  u_wire_ = wire(".u_wire", compute);
  returned_ = step(".returned", segment);
  returned_wire_ = wire(".returned_wire", segment);
}

Tensor BucketRun::sent(Stream& comm, const Tensor& values, const Tensor& wire) {
  if (!wire) return values;
  cast(comm, {.y = wire, .x = values});
  return wire;
}

void BucketRun::prepare(Stream& update) const {
  const std::int64_t n = segment_.size();
  if (bucket_.exchange == Exchange::kNone || n == 0) return;
  muon_nesterov(update, {.x = nesterov_.elements(0, n),
                         .grad = reduced_,
                         .momentum = momentum_,
                         .scalars = scalars_});
  if (n < nesterov_.numel()) update.zero(nesterov_.elements(n, nesterov_.numel() - n));
}

void BucketRun::exchange(Stream& comm) const {
  if (world_ == 1 || bucket_.exchange == Exchange::kNone) return;
  const ProfileRange phase(ProfileKind::kPhase, "exchange ", bucket_.name);
  const Tensor in = sent(comm, nesterov_, nesterov_wire_);
  const Tensor out = exchanged_wire_ ? exchanged_wire_ : exchanged_;
  Tag tag = bucket_.exchange_tag;
  if (bucket_.exchange == Exchange::kAllGather) communicator_.all_gather(comm, tag, out, in);
  if (bucket_.exchange == Exchange::kAllToAll) communicator_.all_to_all(comm, tag, out, in);
  if (bucket_.exchange == Exchange::kGatherToOwner)
    for (std::size_t i = 0; i < bucket_.units.size(); ++i, ++tag) {
      const Unit& unit = bucket_.units[i];
      communicator_.gather(comm, tag,
                           unit.owner == rank_ ? compute_.part(out, unit_range(unit)) : Tensor{},
                           held_part(in, unit), counts_of(i), unit.owner);
    }
  if (exchanged_wire_)
    for (const Batch& batch : batches_)
      cast(comm,
           {.y = compute_.part(exchanged_, batch.range), .x = compute_.part(out, batch.range)});
}

void BucketRun::zero_gaps(Stream& stream) const {
  std::int64_t end = 0;
  for (const Batch& batch : batches_) {
    const std::int64_t begin = batch.range.begin - compute_.ranges().front().begin;
    if (end < begin) stream.zero(u_.elements(end, begin - end));
    end = begin + batch.range.size();
  }
  if (end < u_.numel()) stream.zero(u_.elements(end, u_.numel() - end));
}

void BucketRun::return_updates(Stream& comm) const {
  if (!returned_) return;
  const ProfileRange phase(ProfileKind::kPhase, "return ", bucket_.name);
  const Tensor in = sent(comm, u_, u_wire_);
  const Tensor out = returned_wire_ ? returned_wire_ : returned_;
  Tag tag = bucket_.return_tag;
  if (bucket_.returns == Return::kAllToAll) {
    communicator_.all_to_all(comm, tag, out, in);
  } else {
    for (std::size_t i = 0; i < bucket_.units.size(); ++i, ++tag) {
      const Unit& unit = bucket_.units[i];
      communicator_.scatter(comm, tag, held_part(out, unit),
                            unit.owner == rank_ ? compute_.part(in, unit_range(unit)) : Tensor{},
                            counts_of(i), unit.owner);
    }
  }
  if (returned_wire_)
    for (const Piece& piece : pieces_)
      cast(comm,
           {.y = segment_.part(returned_, piece.range), .x = segment_.part(out, piece.range)});
}

std::vector<std::int64_t> BucketRun::counts_of(std::size_t unit) const {
  const Range range = unit_range(bucket_.units[unit]);
  const Range block = bucket_.cut == Cut::kWhole ? Range{} : blocks(bucket_)[unit];
  std::vector<std::int64_t> counts;
  counts.reserve(static_cast<std::size_t>(world_));
  for (int r = 0; r < world_; ++r)
    counts.push_back(intersection(segment_of_block(bucket_, block, r), range).size());
  return counts;
}

Tensor BucketRun::held_part(const Tensor& tensor, const Unit& unit) const {
  const std::vector<Range> held = segment_.within(unit_range(unit));
  return segment_.part(tensor, held.empty() ? Range{} : held.front());
}

}  // namespace muo
