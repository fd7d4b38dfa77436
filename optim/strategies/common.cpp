#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {
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
  bucket.segments[0] = offset;  // nothing is sharded, so the division of the space is arbitrary
  return bucket;
}

std::vector<Members> by_shape(Params params) {
  std::map<std::pair<std::int64_t, std::int64_t>, Members> groups;
  for (const std::size_t i : muon_members(params))
    groups[{params[i].shape[0], params[i].shape[1]}].push_back(i);
  std::vector<Members> out;
  out.reserve(groups.size());
  for (auto& entry : groups)
    out.push_back(std::move(entry.second));
  return out;
}

std::vector<Members> layers_backward(Params params) {
  std::map<int, Members> by_layer;
  std::vector<Members> layers;
  for (const std::size_t i : muon_members(params)) {
    if (params[i].layer == kNoLayer)
      layers.push_back({i});
    else
      by_layer[params[i].layer].push_back(i);
  }
  for (auto& entry : by_layer)
    layers.push_back(std::move(entry.second));
  const auto last = [&](const Members& layer) {
    int ready = params[layer.front()].ready;
    for (const std::size_t i : layer)
      ready = std::max(ready, params[i].ready);
    return ready;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const Members& a, const Members& b) { return last(a) < last(b); });
  return layers;
}

Members backward_order(Params params, Members members) {
  std::stable_sort(members.begin(), members.end(),
                   [&](std::size_t a, std::size_t b) { return params[a].ready < params[b].ready; });
  return members;
}

std::vector<Members> runs_of_bytes(Params params, const Members& members) {
  constexpr std::int64_t kElements = std::int64_t{25} << 18;  // PyTorch DDP's 25 MiB
  std::vector<Members> runs;
  std::int64_t elements = 0;
  for (const std::size_t i : members) {
    const std::int64_t n = params[i].shape.numel();
    if (runs.empty() || elements + n > kElements) {
      runs.emplace_back();
      elements = 0;
    }
    runs.back().push_back(i);
    elements += n;
  }
  return runs;
}

std::vector<Members> blocks_of(const Members& members, std::size_t count) {
  std::vector<Members> blocks;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i % count == 0) blocks.emplace_back();
    blocks.back().push_back(members[i]);
  }
  return blocks;
}

std::vector<int> one_each(const Members& members) {
  std::vector<int> owners(members.size());
  std::iota(owners.begin(), owners.end(), 0);
  return owners;
}

Bucket owned_bucket(Params params, const Members& members, const std::vector<int>& owners,
                    int world, Segments sizes) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (owners[a] != owners[b]) return owners[a] < owners[b];
    return shape_less(params[members[a]].shape, params[members[b]].shape);
  });
  Bucket bucket{.name = params[members.front()].name + "...", .rule = UpdateRule::kMuon};
  bucket.segments.assign(static_cast<std::size_t>(world), 0);
  const Unit* previous = nullptr;
  bucket.units.reserve(members.size());
  for (const std::size_t i : order) {
    const Shape& shape = params[members[i]].shape;
    std::int64_t& used = bucket.segments[static_cast<std::size_t>(owners[i])];
    if (previous != nullptr && params[previous->param].shape != shape) used = align_elements(used);
    bucket.units.push_back(
        {.param = members[i], .end = shape.numel(), .owner = owners[i], .offset = used});
    previous = &bucket.units.back();
    used += shape.numel();
  }
  if (world > 1)
    for (std::int64_t& segment : bucket.segments)
      segment = align_elements(segment);
  if (sizes == Segments::kEqual)
    std::ranges::fill(bucket.segments, *std::ranges::max_element(bucket.segments));
  std::vector<std::int64_t> begins(bucket.segments.size());
  std::exclusive_scan(bucket.segments.begin(), bucket.segments.end(), begins.begin(),
                      std::int64_t{0});
  for (Unit& unit : bucket.units)
    unit.offset += begins[static_cast<std::size_t>(unit.owner)];
  return bucket;
}

Bucket element_bucket(Params params, const Members& members, int world) {
  Bucket bucket = replicated_bucket(params, members, world);
  bucket.reduction = Reduction::kReduceScatter;
  bucket.state = StateAt::kElements;
  bucket.exchange = Exchange::kAllGather;
  bucket.returns = Return::kOwnSlice;
  bucket.publish = Publish::kAllGather;
  const std::int64_t segment = (bucket.full_elements() + world - 1) / world;
  std::ranges::fill(bucket.segments, world > 1 ? align_elements(segment) : segment);
  return bucket;
}

Bucket spread_bucket(Params params, const Members& members, const std::vector<int>& owners,
                     int world) {
  Bucket bucket{.name = params[members.front()].name + "...",
                .rule = UpdateRule::kMuon,
                .cut = Cut::kEachUnit,
                .state = StateAt::kElements};
  std::int64_t segment = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::int64_t n = params[members[i]].shape.numel();
    bucket.units.push_back(
        {.param = members[i], .end = n, .owner = owners[i], .offset = segment * world});
    const std::int64_t part = (n + world - 1) / world;
    segment += world > 1 ? align_elements(part) : part;
  }
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

std::vector<double> flops_by_rank(const Bucket& bucket, Params params, int world,
                                  const NewtonSchulzForm& form) {
  std::vector<double> flops(static_cast<std::size_t>(world), 0.0);
  if (bucket.rule != UpdateRule::kMuon) return flops;
  for (const Unit& unit : bucket.units)
    for (int r = 0; r < world; ++r)
      if (computes(bucket, unit, r))
        flops[static_cast<std::size_t>(r)] += newton_schulz_flops(params[unit.param].shape, form);
  return flops;
}

double busiest_flops(const Bucket& bucket, Params params, int world, const NewtonSchulzForm& form) {
  const std::vector<double> flops = flops_by_rank(bucket, params, world, form);
  return *std::max_element(flops.begin(), flops.end());
}

bool shape_less(const Shape& a, const Shape& b) {
  for (std::size_t i = 0; i < std::min(a.rank(), b.rank()); ++i)
    if (a[i] != b[i]) return a[i] < b[i];
  return a.rank() < b.rank();
}

}  // namespace muo::optim::strategies
