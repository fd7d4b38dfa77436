#include "optim/muon_update.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/cast.h"
#include "kernels/commit.h"
#include "kernels/muon.h"
#include "kernels/transpose.h"
#include "runtime/profile_range.h"

namespace muo::optim {

MuonUpdate::MuonUpdate(const RankContext& rank, const BucketTensors& tensors,
                       const ShardingPlan& plan, std::span<const ParamSpec> params, Arena& arena,
                       Tensor scalars, Tensor found, std::int64_t base)
    : BucketUpdate(tensors, params, scalars),
      version_(*plan.version),
      iteration_(first_steps(version_, plan.newton_schulz_steps)),
      rank_(rank.rank),
      found_(found),
      base_(base),
      momentum_(state_tensor(".momentum", bucket().state_dtype, MemoryCategory::kMomentum, arena)) {
  find_stacks();
  if (bucket().exchange == Exchange::kNone) {
    const std::int64_t n = ranges().compute.size();
    u_ = tensors.reduced_by_others(n);
    if (!u_)
      u_ = arena.tensor(
          {.name = bucket().name + ".u", .shape = {n}, .category = MemoryCategory::kUpdate});
  } else {
    std::vector<Range> computed, committed;
    for (const Stack& stack : stacks_)
      computed.push_back(stack.range);
    for (const CommitRange& each : commit_ranges_)
      committed.push_back(each.range);
    exchange_.emplace(rank, tensors, std::move(computed), std::move(committed), arena);
    u_ = exchange_->updates();
  }
  for (Stack& stack : stacks_)
    allocate(stack, arena);
  add_iterations(*plan.newton_schulz, arena);
}

void MuonUpdate::find_stacks() {
  const std::vector<Unit>& units = bucket().units;
  for (std::size_t i = 0; i < units.size();) {
    std::size_t j = i + 1;
    while (j < units.size() && units[j].owner == units[i].owner &&
           params_[units[j].param].shape == params_[units[i].param].shape &&
           units[j].offset == units[j - 1].offset + units[j - 1].end)
      ++j;
    if (tensors_.computes(units[i]))
      stacks_.push_back({.first_unit = i,
                         .count = static_cast<std::int64_t>(j - i),
                         .range = {units[i].offset, unit_range(units[j - 1]).end}});
    i = j;
  }
}

void MuonUpdate::allocate(Stack& stack, Arena& arena) {
  const ParamSpec& param = params_[bucket().units[stack.first_unit].param];
  const std::int64_t k = stack.count;
  const std::int64_t rows = param.shape[0];
  const std::int64_t columns = param.shape[1];
  const std::int64_t length = std::max(rows, columns);
  stack.u = ranges().compute.slice(u_, stack.range).view({k, rows, columns});
  stack.row_norms = arena.tensor({.name = param.name + ".row_norms",
                                  .shape = {k, rows},
                                  .category = MemoryCategory::kWorkspace});
  if (!version_.factored_variance) return;
  stack.variance = arena.tensor({.name = param.name + ".variance",
                                 .shape = {k, length},
                                 .category = MemoryCategory::kMomentum,
                                 .lifespan = Lifespan::kRun});
  stack.new_variance = arena.tensor({.name = param.name + ".new_variance",
                                     .shape = {k, length},
                                     .category = MemoryCategory::kUpdate});
}

// One iteration per stack; if merged, one iteration for all stacks of a shape and its transpose,
// computed in the wide orientation.
void MuonUpdate::add_iterations(const NewtonSchulzForm& form, Arena& arena) {
  std::vector<std::vector<Member>> groups;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> by_shape;
  for (std::size_t s = 0; s < stacks_.size(); ++s) {
    const Shape& shape = stacks_[s].u.shape;
    std::size_t group = groups.size();
    if (form.merged)
      group = by_shape.try_emplace(std::minmax(shape[1], shape[2]), group).first->second;
    if (group == groups.size()) groups.emplace_back();
    std::int64_t begin = 0;
    for (const Member& member : groups[group])
      begin += stacks_[member.stack].count;
    groups[group].push_back(
        {.stack = s, .begin = begin, .transposed = form.merged && shape[1] > shape[2]});
  }
  for (std::vector<Member>& members : groups) {
    const Stack& first = stacks_[members.front().stack];
    const Stack& last = stacks_[members.back().stack];
    const auto [rows, columns] = std::pair(first.u.shape[1], first.u.shape[2]);
    const bool turned = members.front().transposed;
    const Shape shape{members.back().begin + last.count, turned ? columns : rows,
                      turned ? rows : columns};
    const DType dtype = bucket().replica_dtype;
    const bool in_place = members.size() == 1 && !turned && dtype == first.u.dtype;
    iterations_.push_back({.members = std::move(members),
                           .newton_schulz = NewtonSchulz(
                               params_[bucket().units[first.first_unit].param].name, shape, dtype,
                               in_place ? first.u : Tensor{}, iteration_, form, arena)});
  }
}

void MuonUpdate::prepare(Stream& update) const {
  const std::int64_t n = ranges().segment.size();
  if (!exchange_ || n == 0) return;
  const Tensor& held = exchange_->held();
  muon_nesterov(update, {.x = held.elements(0, n),
                         .grad = tensors_.reduced(),
                         .momentum = momentum_,
                         .scalars = scalars_});
  if (n < held.numel()) update.zero(held.elements(n, held.numel() - n));
}

void MuonUpdate::exchange(Stream& comm) const {
  if (exchange_) exchange_->send(comm);
}

void MuonUpdate::return_updates(Stream& comm) const {
  if (exchange_) exchange_->send_back(comm);
}

void MuonUpdate::compute(Stream& update, const UpdateClock& clock) const {
  const ProfileRange phase(ProfileKind::kPhase, "update ", bucket().name);
  if (exchange_) exchange_->zero_gaps(update);
  for (const Iteration& iteration : iterations_) {
    for (const Member& member : iteration.members)
      fill_input(update, iteration, member);
    clock.mark_phase(update, UpdatePhase::kElementwise);
    iteration.newton_schulz.run(update);
    clock.mark_phase(update, UpdatePhase::kGemm);
    for (const Member& member : iteration.members)
      take_result(update, iteration, member);
  }
}

void MuonUpdate::fill_input(Stream& update, const Iteration& iteration,
                            const Member& member) const {
  const Stack& stack = stacks_[member.stack];
  const std::int64_t end = member.begin + stack.count;
  const Tensor input = iteration.newton_schulz.input().rows(member.begin, end);
  // Row norms are those of the parameter's rows before it is transposed.
  const Tensor x =
      member.transposed
          ? iteration.newton_schulz.scratch().rows(member.begin, end).view(stack.u.shape)
          : input;
  muon_input(update,
             {.x = x,
              .row_norms = stack.row_norms,
              .grad = exchange_ ? ranges().compute.slice(exchange_->input(), stack.range)
                                : tensors_.reduced(stack.range),
              .momentum = exchange_ ? Tensor{} : ranges().state.slice(momentum_, stack.range),
              .scalars = scalars_,
              .normalisation = version_.normalisation});
  if (member.transposed) transpose(update, {.y = input, .x = x});
}

void MuonUpdate::take_result(Stream& update, const Iteration& iteration,
                             const Member& member) const {
  const Stack& stack = stacks_[member.stack];
  Tensor x = iteration.newton_schulz.result().rows(member.begin, member.begin + stack.count);
  if (member.transposed) {
    transpose(update, {.y = stack.u, .x = x});
    x = stack.u;
  }
  if (version_.factored_variance)
    muon_scale(update, {.u = stack.u,
                        .x = x,
                        .new_variance = stack.new_variance,
                        .variance = stack.variance,
                        .scalars = scalars_,
                        .unit_update = version_.unit_update});
  else if (x.dtype != stack.u.dtype)
    cast(update, {.y = stack.u, .x = x});
  else if (x.data != stack.u.data)
    update.copy(stack.u, x);
  // The variance, which is small, contains the mean of u's squares for each row or column.
  const Tensor looked_at = version_.factored_variance ? stack.new_variance : stack.u;
  note_nonfinite(update, {.found = found_,
                          .x = looked_at,
                          .base = base_ + stack.range.begin,
                          .stride = stack.u.numel() / looked_at.numel()});
}

void MuonUpdate::commit(Stream& update) const {
  const ProfileRange phase(ProfileKind::kPhase, "commit ", bucket().name);
  const Tensor returned = exchange_ ? exchange_->returned() : Tensor{};
  for (const CommitRange& each : commit_ranges_)
    muon_commit(update, {.weight = tensors_.master(each.range),
                         .replica = tensors_.committed_replica(each.range),
                         .momentum = ranges().state.slice(momentum_, each.range),
                         .u = returned ? ranges().segment.slice(returned, each.range)
                                       : ranges().compute.slice(u_, each.range),
                         .grad = tensors_.reduced(each.range),
                         .scalars = scalars_,
                         .rate = each.rate,
                         .rounding = each.rounding.value_or(StochasticRounding{}),
                         .squares = squares_of(each)});
  if (!version_.factored_variance) return;
  for (const Stack& stack : stacks_)
    muon_commit(
        update,
        {.variance = stack.variance, .new_variance = stack.new_variance, .scalars = scalars_});
}

void MuonUpdate::append_other_state(std::vector<StateEntry>& entries) const {
  if (!version_.factored_variance) return;
  for (const Stack& stack : stacks_)
    for (std::int64_t i = 0; i < stack.count; ++i) {
      const Unit& unit = bucket().units[stack.first_unit + static_cast<std::size_t>(i)];
      const Tensor values = stack.variance.row(i);
      entries.push_back({.name = params_[unit.param].name + ".variance",
                         .shape = values.shape,
                         .begin = 0,
                         .values = values,
                         .writer = bucket().compute == ComputeAt::kOwner || rank_ == 0});
    }
}

}  // namespace muo::optim
