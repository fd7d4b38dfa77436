#include "optim/weight_schedule.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "runtime/device.h"

namespace muo::optim {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The stage of each parameter, in the order of use; adjacent parameters of one layer share a stage.
std::vector<int> find_stages(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  std::vector<std::size_t> order;
  for (const Bucket& bucket : plan.buckets)
    if (bucket.replica == ReplicaAt::kSharded)
      for (const Unit& unit : bucket.units)
        if (unit.begin == 0) order.push_back(unit.param);
  std::ranges::sort(order, {}, [&](std::size_t i) { return params[i].use; });
  std::vector<int> stages(params.size(), kReplicated);
  int stage = -1;
  const ParamSpec* previous = nullptr;
  for (const std::size_t i : order) {
    const bool same_layer =
        previous != nullptr && params[i].layer != kNoLayer && params[i].layer == previous->layer;
    stages[i] = same_layer ? stage : ++stage;
    previous = &params[i];
  }
  return stages;
}

void add_part(WeightGroup& group, const Bucket& bucket, std::size_t index, Range block) {
  group.parts.push_back({.bucket = index, .block = block, .offset = group.bytes});
  group.bytes += aligned(block.size() * size_of(bucket.replica_dtype));
}

std::vector<WeightGroup> find_groups(const ShardingPlan& plan, std::span<const ParamSpec> params,
                                     const std::vector<int>& stage_of) {
  std::vector<WeightGroup> groups;
  std::map<int, WeightGroup> by_stage;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    if (bucket.replica != ReplicaAt::kSharded) continue;
    if (bucket.cut == Cut::kEachUnit) {
      const std::vector<Range> cut = blocks(bucket);
      for (std::size_t i = 0; i < cut.size(); ++i) {
        const std::size_t param = bucket.units[i].param;
        WeightGroup& group = by_stage[stage_of[param]];
        group.first = group.last = stage_of[param];
        group.in_backward = group.in_backward || params[param].in_backward;
        add_part(group, bucket, b, cut[i]);
      }
      continue;
    }
    WeightGroup group;
    group.first = group.last = stage_of[bucket.units.front().param];
    for (const Unit& unit : bucket.units) {
      group.first = std::min(group.first, stage_of[unit.param]);
      group.last = std::max(group.last, stage_of[unit.param]);
      group.in_backward = group.in_backward || params[unit.param].in_backward;
    }
    add_part(group, bucket, b, {0, bucket.full_elements()});
    groups.push_back(std::move(group));
  }
  for (auto& [stage, group] : by_stage)
    groups.push_back(std::move(group));
  std::ranges::stable_sort(groups, {}, &WeightGroup::first);
  return groups;
}

// Largest first, so that a slot has the size of the first group assigned to it.
std::vector<std::int64_t> assign_slots(std::vector<WeightGroup>& groups) {
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return groups[a].bytes > groups[b].bytes; });
  const auto overlap = [](const WeightGroup& a, const WeightGroup& b) {
    return a.first <= b.last + 1 && b.first <= a.last + 1;
  };
  std::vector<std::int64_t> slots;
  std::vector<std::vector<std::size_t>> members;
  for (const std::size_t g : order) {
    std::size_t slot = 0;
    while (slot < slots.size() && std::ranges::any_of(members[slot], [&](std::size_t other) {
             return overlap(groups[g], groups[other]);
           }))
      ++slot;
    if (slot == slots.size()) {
      slots.push_back(groups[g].bytes);
      members.emplace_back();
    }
    groups[g].slot = slot;
    members[slot].push_back(g);
  }
  return slots;
}

// A stage that compute enters, in the forward or backward pass.
struct Entered {
  int stage = 0;
  bool backward = false;
};

std::vector<WeightSchedule::Visit> visits_of(const WeightSchedule& schedule,
                                             const std::vector<Entered>& stages) {
  const auto reads = [&](const WeightGroup& group, const Entered& at) {
    return group.first <= at.stage && at.stage <= group.last && (!at.backward || group.in_backward);
  };
  constexpr auto kNobody = static_cast<std::size_t>(-1);
  std::vector<std::size_t> in_slot(schedule.slots.size(), kNobody);
  std::vector<WeightSchedule::Visit> visits;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    WeightSchedule::Visit& visit = visits.emplace_back();
    visit.stage = stages[i].stage;
    for (std::size_t read = i; read < std::min(i + 2, stages.size()); ++read)
      for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
        const WeightGroup& group = schedule.groups[g];
        if (!reads(group, stages[read]) || in_slot[group.slot] == g) continue;
        in_slot[group.slot] = g;
        visit.gathers.push_back(g);
      }
  }
  return visits;
}

}  // namespace

WeightSchedule make_weight_schedule(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  WeightSchedule schedule;
  schedule.stage_of = find_stages(plan, params);
  schedule.groups = find_groups(plan, params, schedule.stage_of);
  schedule.slots = assign_slots(schedule.groups);
  int stages = 0;
  for (const WeightGroup& group : schedule.groups)
    stages = std::max(stages, group.last + 1);
  std::vector<Entered> pass(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage)
    pass[static_cast<std::size_t>(stage)].stage = stage;
  schedule.forward = visits_of(schedule, pass);
  for (int stage = stages - 2; stage >= 0; --stage)  // the last stage is not entered again
    if (std::ranges::any_of(schedule.groups, [&](const WeightGroup& group) {
          return group.first <= stage && stage <= group.last && group.in_backward;
        }))
      pass.push_back({.stage = stage, .backward = true});
  schedule.training = visits_of(schedule, pass);
  return schedule;
}

std::int64_t WeightSchedule::collectives(std::span<const Visit> visits) const {
  std::size_t count = 0;
  for (const Visit& visit : visits)
    for (const std::size_t g : visit.gathers)
      count += groups[g].parts.size();
  return static_cast<std::int64_t>(count);
}

std::int64_t WeightSchedule::sent_bytes(std::span<const Visit> visits, const ShardingPlan& plan,
                                        int rank) const {
  std::int64_t bytes = 0;
  for (const Visit& visit : visits)
    for (const std::size_t g : visit.gathers)
      for (const WeightGroup::Part& part : groups[g].parts) {
        const Bucket& bucket = plan.buckets[part.bucket];
        const std::int64_t own = segment_of_block(bucket, part.block, rank).size();
        bytes += (part.block.size() - own) * size_of(bucket.weight_wire);
      }
  return bytes;
}

}  // namespace muo::optim
