// BucketRun where it computes Muon's updates.
#include <algorithm>
#include <map>
#include <utility>

#include "kernels/cast.h"
#include "kernels/commit.h"
#include "kernels/muon.h"
#include "kernels/transpose.h"
#include "optim/bucket_run.h"
#include "runtime/profile_range.h"

namespace muo {

void BucketRun::allocate_muon(Arena& arena) {
  if (bucket_.exchange == Exchange::kNone)
    u_ = arena.tensor({.name = bucket_.name + ".u",
                       .shape = {compute_.size()},
                       .category = MemoryCategory::kUpdate});
  else
    allocate_exchange(arena);

  const std::vector<Unit>& units = bucket_.units;
  for (std::size_t i = 0; i < units.size();) {
    std::size_t j = i + 1;
    while (j < units.size() && units[j].owner == units[i].owner &&
           params_[units[j].param].shape == params_[units[i].param].shape &&
           units[j].offset == units[j - 1].offset + units[j - 1].end)
      ++j;
    if (is_local(units[i])) add_batch(i, j, arena);
    i = j;
  }
  add_iterations(arena);
}

void BucketRun::add_batch(std::size_t first, std::size_t last, Arena& arena) {
  const Unit& unit = bucket_.units[first];
  const ParamSpec& param = params_[unit.param];
  const std::int64_t rows = param.shape[0];
  const std::int64_t columns = param.shape[1];
  const auto k = static_cast<std::int64_t>(last - first);
  const std::int64_t length = std::max(rows, columns);
  const Range range{unit.offset, unit.offset + k * rows * columns};
  const Tensor u = compute_.part(u_, range).view({k, rows, columns});
  const std::string& name = param.name;
  const Tensor row_norms = arena.tensor(
      {.name = name + ".row_norms", .shape = {k, rows}, .category = MemoryCategory::kWorkspace});
  Tensor variance;
  Tensor new_variance;
  if (version_.factored_variance) {
    variance = arena.tensor({.name = name + ".variance",
                             .shape = {k, length},
                             .category = MemoryCategory::kMomentum,
                             .lifespan = Lifespan::kRun});
    new_variance = arena.tensor({.name = name + ".new_variance",
                                 .shape = {k, length},
                                 .category = MemoryCategory::kUpdate});
  }
  batches_.push_back({.first_unit = first,
                      .count = k,
                      .range = range,
                      .u = u,
                      .row_norms = row_norms,
                      .variance = variance,
                      .new_variance = new_variance});
}

// One for each batch; merged, one for all of a shape and its transpose, which is then the wide one
// of the two.
void BucketRun::add_iterations(Arena& arena) {
  std::vector<std::vector<Member>> groups;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> by_shape;
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    const Shape& shape = batches_[b].u.shape;
    std::size_t group = groups.size();
    if (form_.merged)
      group = by_shape.try_emplace(std::minmax(shape[1], shape[2]), group).first->second;
    if (group == groups.size()) groups.emplace_back();
    std::int64_t begin = 0;
    for (const Member& member : groups[group])
      begin += batches_[member.batch].count;
    groups[group].push_back(
        {.batch = b, .begin = begin, .transposed = form_.merged && shape[1] > shape[2]});
  }
  for (std::vector<Member>& members : groups) {
    const Batch& first = batches_[members.front().batch];
    const Batch& last = batches_[members.back().batch];
    const auto [rows, columns] = std::pair(first.u.shape[1], first.u.shape[2]);
    const bool turned = members.front().transposed;
    const Shape shape{members.back().begin + last.count, turned ? columns : rows,
                      turned ? rows : columns};
    const bool in_place = members.size() == 1 && !turned && bucket_.replica_dtype == first.u.dtype;
    iterations_.push_back(
        {.members = std::move(members),
         .newton_schulz = NewtonSchulz(params_[bucket_.units[first.first_unit].param].name, shape,
                                       bucket_.replica_dtype, in_place ? first.u : Tensor{},
                                       version_.iteration, form_, arena)});
  }
}

void BucketRun::compute(Stream& update, const UpdateClock& clock) const {
  const ProfileRange phase(ProfileKind::kPhase, "update ", bucket_.name);
  if (returned_) zero_gaps(update);
  for (const Iteration& iteration : iterations_) {
    for (const Member& member : iteration.members)
      fill_input(update, iteration, member);
    clock.lap(update, UpdatePhase::kElementwise);
    iteration.newton_schulz.run(update);
    clock.lap(update, UpdatePhase::kGemm);
    for (const Member& member : iteration.members)
      take_result(update, iteration, member);
  }
}

void BucketRun::fill_input(Stream& update, const Iteration& iteration, const Member& member) const {
  const Batch& batch = batches_[member.batch];
  const std::int64_t end = member.begin + batch.count;
  const Tensor input = iteration.newton_schulz.input().rows(member.begin, end);
  // Rows are scaled as they lie in the parameter.
  const Tensor x =
      member.transposed
          ? iteration.newton_schulz.scratch().rows(member.begin, end).view(batch.u.shape)
          : input;
  const bool exchanged = bucket_.exchange != Exchange::kNone;
  muon_input(update, {.x = x,
                      .row_norms = batch.row_norms,
                      .grad = exchanged ? compute_.part(exchanged_, batch.range)
                                        : reduced_ranges_.part(reduced_, batch.range),
                      .momentum = exchanged ? Tensor{} : state_.part(momentum_, batch.range),
                      .scalars = scalars_,
                      .normalisation = version_.normalisation});
  if (member.transposed) transpose(update, {.y = input, .x = x});
}

void BucketRun::take_result(Stream& update, const Iteration& iteration,
                            const Member& member) const {
  const Batch& batch = batches_[member.batch];
  Tensor x = iteration.newton_schulz.result().rows(member.begin, member.begin + batch.count);
  if (member.transposed) {
    transpose(update, {.y = batch.u, .x = x});
    x = batch.u;
  }
  if (version_.factored_variance)
    muon_scale(update, {.u = batch.u,
                        .x = x,
                        .new_variance = batch.new_variance,
                        .variance = batch.variance,
                        .scalars = scalars_,
                        .unit_update = version_.unit_update});
  else if (x.dtype != batch.u.dtype)
    cast(update, {.y = batch.u, .x = x});
  else if (x.data != batch.u.data)
    update.copy(batch.u, x);
  // The variance, which is small, has a mean of u's squares for each row or column.
  const Tensor looked_at = version_.factored_variance ? batch.new_variance : batch.u;
  note_nonfinite(update, {.found = found_,
                          .x = looked_at,
                          .base = bases_.updates + batch.range.begin,
                          .stride = batch.u.numel() / looked_at.numel()});
}

}  // namespace muo
