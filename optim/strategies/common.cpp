#include <algorithm>
#include <map>
#include <numeric>

#include "optim/strategies/strategies.h"

namespace muo::strategies {
namespace {

constexpr std::int64_t kSmall = 1024;  // elements; nanochat's limit

bool is_muon(const ParamSpec& param) { return update_group(param.role).rule == UpdateRule::kMuon; }

Bucket row_sliced(Params params, std::size_t index, int world) {
  const ParamSpec& param = params[index];
  const std::int64_t rows = param.shape[0];
  const std::int64_t row = param.shape.numel() / rows;
  const std::int64_t slice = (rows + world - 1) / world;
  Bucket bucket{.name = param.name, .rule = UpdateRule::kAdamW};
  bucket.segments.assign(static_cast<std::size_t>(world), slice * row);
  for (int r = 0; r < world && r * slice < rows; ++r)
    bucket.units.push_back({.param = index,
                            .begin = r * slice * row,
                            .end = std::min((r + 1) * slice, rows) * row,
                            .owner = r,
                            .offset = r * slice * row,
                            .adam_group = update_group(param.role).adam_group});
  return bucket;
}

}  // namespace

Members muon_members(Params params) {
  Members members;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (is_muon(params[i])) members.push_back(i);
  return members;
}

Buckets sharded_adamw(Params params, int world) {
  Buckets buckets;
  std::map<NumberClass, Members> small;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (is_muon(params[i])) continue;
    if (params[i].shape.numel() < kSmall)
      small[number_class(params[i].role)].push_back(i);
    else
      buckets.push_back(row_sliced(params, i, world));
  }
  for (const auto& [number_class, members] : small) {
    buckets.push_back(replicated_bucket(params, members, world));
    buckets.back().name = "small: " + buckets.back().name;
  }
  return buckets;
}

Bucket replicated_bucket(Params params, const Members& members, int world) {
  Bucket bucket{.name = params[members.front()].name,
                .rule = update_group(params[members.front()].role).rule,
                .reduction = Reduction::kAllReduce,
                .state = StateAt::kEveryRank,
                .compute = ComputeAt::kEveryRank,
                .publish = Publish::kNone};
  if (members.size() > 1) bucket.name += "...";
  Members order = members;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return shape_less(params[a].shape, params[b].shape);
  });
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ParamSpec& param = params[order[i]];
    if (i > 0 && param.shape != params[order[i - 1]].shape) offset = align_elements(offset);
    bucket.units.push_back({.param = order[i],
                            .end = param.shape.numel(),
                            .offset = offset,
                            .adam_group = update_group(param.role).adam_group});
    offset += param.shape.numel();
  }
  bucket.segments.assign(static_cast<std::size_t>(world), 0);
  bucket.segments[0] = offset;  // nothing is sharded: how the space is divided has no meaning
  return bucket;
}

Bucket owned_bucket(Params params, const Members& members, const std::vector<int>& owners,
                    int world) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (owners[a] != owners[b]) return owners[a] < owners[b];
    return shape_less(params[members[a]].shape, params[members[b]].shape);
  });
  Bucket bucket{.name = params[members.front()].name + "...", .rule = UpdateRule::kMuon};
  std::int64_t used = 0;  // in the segment of the unit's owner
  std::int64_t segment = 0;
  const Unit* previous = nullptr;
  bucket.units.reserve(members.size());
  for (const std::size_t i : order) {
    const Shape& shape = params[members[i]].shape;
    if (previous == nullptr || previous->owner != owners[i])
      used = 0;
    else if (params[previous->param].shape != shape)
      used = align_elements(used);
    bucket.units.push_back(
        {.param = members[i], .end = shape.numel(), .owner = owners[i], .offset = used});
    previous = &bucket.units.back();
    used += shape.numel();
    segment = std::max(segment, used);
  }
  if (world > 1) segment = align_elements(segment);
  for (Unit& unit : bucket.units)
    unit.offset += unit.owner * segment;
  bucket.segments.assign(static_cast<std::size_t>(world), segment);
  return bucket;
}

int last_ready(const Bucket& bucket, Params params) {
  int last = params[bucket.units.front().param].ready;
  for (const Unit& unit : bucket.units)
    last = std::max(last, params[unit.param].ready);
  return last;
}

int first_use(const Bucket& bucket, Params params) {
  int first = params[bucket.units.front().param].use;
  for (const Unit& unit : bucket.units)
    first = std::min(first, params[unit.param].use);
  return first;
}

std::vector<double> flops_by_rank(const Bucket& bucket, Params params, int world) {
  std::vector<double> flops(static_cast<std::size_t>(world), 0.0);
  if (bucket.rule != UpdateRule::kMuon) return flops;
  for (const Unit& unit : bucket.units)
    for (int r = 0; r < world; ++r)
      if (bucket.compute == ComputeAt::kEveryRank || unit.owner == r)
        flops[static_cast<std::size_t>(r)] += newton_schulz_flops(params[unit.param].shape);
  return flops;
}

double busiest_flops(const Bucket& bucket, Params params, int world) {
  const std::vector<double> flops = flops_by_rank(bucket, params, world);
  return *std::max_element(flops.begin(), flops.end());
}

bool shape_less(const Shape& a, const Shape& b) {
  for (std::size_t i = 0; i < std::min(a.rank(), b.rank()); ++i)
    if (a[i] != b[i]) return a[i] < b[i];
  return a.rank() < b.rank();
}

}  // namespace muo::strategies
