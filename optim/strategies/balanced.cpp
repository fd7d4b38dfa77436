#include <algorithm>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>

#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {
namespace {

// One way of dealing some matrices out to ranks.
struct Dealt {
  std::vector<int> owners;
  double busiest_flops = 0;
  double segment = 0;  // elements
  [[nodiscard]] double time(double ideal_flops, double ideal_segment) const;
};

// A bucket takes as long as its busiest owner computes, and its wires carry equal segments. How
// much a byte of padding costs against a FLOP depends on the machine; half is between a box with
// fast links and one without.
constexpr double kWireWeight = 0.5;

double Dealt::time(double ideal_flops, double ideal_segment) const {
  return busiest_flops / ideal_flops + kWireWeight * segment / ideal_segment;
}

// Longest processing time first (Graham 1969) among the ranks that can hold the matrix; where
// none has, the emptiest takes it.
Dealt deal(Params params, const Members& members, const std::vector<std::size_t>& longest_first,
           int world, double capacity, const NewtonSchulzForm& form) {
  using Load = std::tuple<double, double, int>;  // FLOPs, elements, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int r = 0; r < world; ++r)
    loads.push({0, 0, r});
  Dealt dealt;
  dealt.owners.resize(members.size());
  std::vector<Load> full;
  for (const std::size_t i : longest_first) {
    const Shape& shape = params[members[i]].shape;
    const auto elements = static_cast<double>(shape.numel());
    while (!loads.empty() && std::get<1>(loads.top()) + elements > capacity) {
      full.push_back(loads.top());
      loads.pop();
    }
    Load chosen;
    if (!loads.empty()) {
      chosen = loads.top();
      loads.pop();
    } else {
      const auto emptiest = std::min_element(
          full.begin(), full.end(),
          [](const Load& a, const Load& b) { return std::get<1>(a) < std::get<1>(b); });
      chosen = *emptiest;
      full.erase(emptiest);
    }
    for (const Load& load : full)
      loads.push(load);
    full.clear();
    std::get<0>(chosen) += newton_schulz_flops(shape, form);
    std::get<1>(chosen) += elements;
    dealt.owners[i] = std::get<2>(chosen);
    dealt.busiest_flops = std::max(dealt.busiest_flops, std::get<0>(chosen));
    dealt.segment = std::max(dealt.segment, std::get<1>(chosen));
    loads.push(chosen);
  }
  return dealt;
}

Dealt best_deal(Params params, const Members& members, int world, const NewtonSchulzForm& form) {
  std::vector<std::size_t> longest_first(members.size());
  double flops = 0;
  double elements = 0;
  double largest = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Shape& shape = params[members[i]].shape;
    longest_first[i] = i;
    flops += newton_schulz_flops(shape, form);
    elements += static_cast<double>(shape.numel());
    largest = std::max(largest, static_cast<double>(shape.numel()));
  }
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](std::size_t a, std::size_t b) {
    return newton_schulz_flops(params[members[a]].shape, form) >
           newton_schulz_flops(params[members[b]].shape, form);
  });
  const double ideal = std::max(elements / world, largest);
  Dealt best;
  for (const double slack : {1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 1e9}) {
    Dealt dealt = deal(params, members, longest_first, world, ideal * slack, form);
    if (best.owners.empty() || dealt.time(flops / world, ideal) < best.time(flops / world, ideal))
      best = std::move(dealt);
    if (best.segment <= ideal && best.busiest_flops * world <= flops) break;  // nothing is better
  }
  return best;
}

// A candidate for the whole model.
struct Layout {
  std::vector<Members> buckets;
  std::vector<std::vector<int>> owners;
  double busiest_flops = 0;  // sums over buckets
  double segments = 0;
};

// Remembers deals by shapes: the layers of most models are alike.
class Dealer {
 public:
  Dealer(Params params, int world, const NewtonSchulzForm& form)
      : params_(params), world_(world), form_(form) {}

  Layout layout(const std::vector<Members>& layers, std::size_t layers_per_bucket) {
    Layout layout;
    for (std::size_t begin = 0; begin < layers.size(); begin += layers_per_bucket) {
      Members members;
      for (std::size_t l = begin; l < std::min(begin + layers_per_bucket, layers.size()); ++l)
        members.insert(members.end(), layers[l].begin(), layers[l].end());
      std::vector<std::int64_t> key;
      for (const std::size_t i : members)
        key.insert(key.end(), {params_[i].shape[0], params_[i].shape[1]});
      auto found = known_.find(key);
      if (found == known_.end())
        found = known_.emplace(key, best_deal(params_, members, world_, form_)).first;
      layout.busiest_flops += found->second.busiest_flops;
      layout.segments += found->second.segment;
      layout.owners.push_back(found->second.owners);
      layout.buckets.push_back(std::move(members));
    }
    return layout;
  }

 private:
  Params params_;
  int world_;
  const NewtonSchulzForm& form_;
  std::map<std::vector<std::int64_t>, Dealt> known_;
};

}  // namespace

// This program's own: whole matrices dealt out longest first under equal bytes per segment. A
// bucket is as few layers as come within 2% of the best balance: small buckets are reduced and
// computed earlier. Cost: sends 2 (N-1)/N of the matrices, almost without padding, and no rank
// waits long for another. When: always, unless there is a reason.
Buckets balanced(Params params, int world, const NewtonSchulzForm& form) {
  constexpr double kGoodEnough = 1.02;
  constexpr double kNoWorse = 1.001;  // a few gates are not worth a bucket of all layers
  Buckets buckets = sharded_adamw(params, world);
  const std::vector<Members> layers = layers_backward(params);
  if (layers.empty()) return buckets;

  double flops = 0;
  double elements = 0;
  for (const std::size_t i : muon_members(params)) {
    flops += newton_schulz_flops(params[i].shape, form);
    elements += static_cast<double>(params[i].shape.numel());
  }
  const auto time = [&](const Layout& layout) {
    return layout.busiest_flops * world / flops + kWireWeight * layout.segments * world / elements;
  };

  Dealer dealer(params, world, form);
  std::vector<Layout> candidates;
  for (std::size_t count = 1; count < layers.size(); count += std::max(count / 3, std::size_t{1}))
    candidates.push_back(dealer.layout(layers, count));
  candidates.push_back(dealer.layout(layers, layers.size()));
  double best = time(candidates.front());
  for (const Layout& layout : candidates)
    best = std::min(best, time(layout));

  // Longest first is a heuristic: where dealing each shape out evenly leaves the busiest ranks less
  // to do, that is the plan.
  Buckets by_shape = stacked(params, world);
  double limit = 0;
  for (const Bucket& bucket : by_shape)
    limit += busiest_flops(bucket, params, world, form);
  for (const Layout& layout : candidates) {
    if (time(layout) > kGoodEnough * best || layout.busiest_flops > kNoWorse * limit) continue;
    for (std::size_t b = 0; b < layout.buckets.size(); ++b)
      buckets.push_back(owned_bucket(params, layout.buckets[b], layout.owners[b], world));
    return buckets;
  }
  return by_shape;
}

}  // namespace muo::optim::strategies
