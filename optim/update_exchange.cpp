#include "optim/update_exchange.h"

#include <utility>

#include "kernels/cast.h"
#include "runtime/profile_range.h"

namespace muo::optim {

UpdateExchange::UpdateExchange(const RankContext& rank, const BucketTensors& tensors,
                               std::vector<Range> computed, std::vector<Range> committed,
                               Arena& arena)
    : tensors_(tensors),
      computed_(std::move(computed)),
      committed_(std::move(committed)),
      communicator_(rank.communicator),
      rank_(rank.rank),
      world_(rank.world) {
  std::int64_t segment = ranges().segment.size();
  std::int64_t compute = ranges().compute.size();
  // An equal part for every rank, even if there are few units.
  if (bucket().exchange == Exchange::kAllToAll) segment = compute = blocks(bucket()).front().size();
  const auto tensor = [&](const char* what, std::int64_t n, MemoryCategory category,
                          DType dtype = DType::kF32) {
    return arena.tensor(
        {.name = bucket().name + what, .shape = {n}, .dtype = dtype, .category = category});
  };
  const auto staging = [&](const char* what, std::int64_t n) {
    return tensor(what, n, MemoryCategory::kStaging);
  };
  const auto wire = [&](const char* what, std::int64_t n) {
    if (world_ == 1 || bucket().gradient_wire == DType::kF32) return Tensor{};
    return tensor(what, n, MemoryCategory::kStaging, bucket().gradient_wire);
  };
  updates_ = tensor(".u", compute, MemoryCategory::kUpdate);
  held_ = staging(".nesterov", segment);
  held_wire_ = wire(".nesterov_wire", segment);
  if (world_ == 1) {
    input_ = ranges().segment.slice(held_, ranges().compute.ranges().front());
    return;
  }
  input_ = staging(".exchanged", compute);
  input_wire_ = wire(".exchanged_wire", compute);
  if (bucket().returns == Return::kOwnSlice) return;
  updates_wire_ = wire(".u_wire", compute);
  returned_ = staging(".returned", segment);
  returned_wire_ = wire(".returned_wire", segment);
}

void UpdateExchange::send(Stream& comm) const {
  if (world_ == 1) return;
  const ProfileRange phase(ProfileKind::kPhase, "exchange ", bucket().name);
  const Tensor in = to_wire(comm, held_, held_wire_);
  const Tensor out = input_wire_ ? input_wire_ : input_;
  Tag tag = bucket().exchange_tag;
  if (bucket().exchange == Exchange::kAllGather) communicator_.all_gather(comm, tag, out, in);
  if (bucket().exchange == Exchange::kAllToAll) communicator_.all_to_all(comm, tag, out, in);
  if (bucket().exchange == Exchange::kGatherToOwner)
    for (std::size_t i = 0; i < bucket().units.size(); ++i, ++tag) {
      const Unit& unit = bucket().units[i];
      communicator_.gather(comm, tag, owned_slice(out, unit), held_slice(in, unit), counts_of(i),
                           unit.owner);
    }
  if (!input_wire_) return;
  const ElementRanges& compute = ranges().compute;
  for (const Range range : computed_)
    cast(comm, {.y = compute.slice(input_, range), .x = compute.slice(out, range)});
}

void UpdateExchange::zero_gaps(Stream& update) const {
  if (!returned_) return;
  const std::int64_t origin = computed_.empty() ? 0 : ranges().compute.ranges().front().begin;
  zero_outside(update, updates_, origin, computed_);
}

void UpdateExchange::send_back(Stream& comm) const {
  if (!returned_) return;
  const ProfileRange phase(ProfileKind::kPhase, "return ", bucket().name);
  const Tensor in = to_wire(comm, updates_, updates_wire_);
  const Tensor out = returned_wire_ ? returned_wire_ : returned_;
  Tag tag = bucket().return_tag;
  if (bucket().returns == Return::kAllToAll) {
    communicator_.all_to_all(comm, tag, out, in);
  } else {
    for (std::size_t i = 0; i < bucket().units.size(); ++i, ++tag) {
      const Unit& unit = bucket().units[i];
      communicator_.scatter(comm, tag, held_slice(out, unit), owned_slice(in, unit), counts_of(i),
                            unit.owner);
    }
  }
  if (!returned_wire_) return;
  const ElementRanges& segment = ranges().segment;
  for (const Range range : committed_)
    cast(comm, {.y = segment.slice(returned_, range), .x = segment.slice(out, range)});
}

Tensor UpdateExchange::held_slice(const Tensor& tensor, const Unit& unit) const {
  const std::vector<Range> held = ranges().segment.within(unit_range(unit));
  return ranges().segment.slice(tensor, held.empty() ? Range{} : held.front());
}

Tensor UpdateExchange::owned_slice(const Tensor& tensor, const Unit& unit) const {
  return unit.owner == rank_ ? ranges().compute.slice(tensor, unit_range(unit)) : Tensor{};
}

std::vector<std::int64_t> UpdateExchange::counts_of(std::size_t unit) const {
  const Range range = unit_range(bucket().units[unit]);
  const Range block = bucket().cut == Cut::kWhole ? Range{} : blocks(bucket())[unit];
  std::vector<std::int64_t> counts;
  counts.reserve(static_cast<std::size_t>(world_));
  for (int r = 0; r < world_; ++r)
    counts.push_back(intersection(segment_of_block(bucket(), block, r), range).size());
  return counts;
}

}  // namespace muo::optim
