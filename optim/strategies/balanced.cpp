#include <algorithm>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>

#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {
namespace {

// One assignment of matrices to ranks.
struct Assignment {
  std::vector<int> owners;
  double busiest_flops = 0;
  double segment = 0;  // elements
  [[nodiscard]] double time(double ideal_flops, double ideal_segment) const;
};

// A bucket takes as long as its busiest owner computes, and its collectives send equal segments.
// The cost of a byte of padding relative to a FLOP depends on the machine; 0.5 is between the
// values for a box with fast links and a box without.
constexpr double kWireWeight = 0.5;

double Assignment::time(double ideal_flops, double ideal_segment) const {
  return busiest_flops / ideal_flops + kWireWeight * segment / ideal_segment;
}

// Longest processing time first (Graham 1969), among the ranks with enough capacity left for the
// matrix. If there is none, the rank with the fewest elements takes it.
Assignment assign(Params params, const Members& members,
                  const std::vector<std::size_t>& longest_first, int world, double capacity,
                  const NewtonSchulzForm& form) {
  using Load = std::tuple<double, double, int>;  // FLOPs, elements, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int r = 0; r < world; ++r)
    loads.push({0, 0, r});
  Assignment assignment;
  assignment.owners.resize(members.size());
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
    assignment.owners[i] = std::get<2>(chosen);
    assignment.busiest_flops = std::max(assignment.busiest_flops, std::get<0>(chosen));
    assignment.segment = std::max(assignment.segment, std::get<1>(chosen));
    loads.push(chosen);
  }
  return assignment;
}

Assignment best_assignment(Params params, const Members& members, int world,
                           const NewtonSchulzForm& form) {
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
  Assignment best;
  for (const double slack : {1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 1e9}) {
    Assignment assignment = assign(params, members, longest_first, world, ideal * slack, form);
    if (best.owners.empty() ||
        assignment.time(flops / world, ideal) < best.time(flops / world, ideal))
      best = std::move(assignment);
    if (best.segment <= ideal && best.busiest_flops * world <= flops) break;  // optimal
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

// Caches assignments by shapes: the layers of most models are alike.
class LayoutBuilder {
 public:
  LayoutBuilder(Params params, int world, const NewtonSchulzForm& form)
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
        found = known_.emplace(key, best_assignment(params_, members, world_, form_)).first;
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
  std::map<std::vector<std::int64_t>, Assignment> known_;
};

}  // namespace

// The project's own strategy: whole matrices are assigned longest first, under equal bytes per
// segment. A bucket has as few layers as are needed for a balance within 2% of the best: small
// buckets are reduced and computed earlier.
// Cost: ranks send 2 (N-1)/N of the matrices, almost without padding, and no rank waits long for
// another. Use it unless there is a reason not to.
Buckets balanced(Params params, int world, const NewtonSchulzForm& form) {
  constexpr double kGoodEnough = 1.02;
  constexpr double kNoWorse = 1.001;  // avoids a bucket of all layers for the sake of a few gates
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

  LayoutBuilder builder(params, world, form);
  std::vector<Layout> candidates;
  for (std::size_t count = 1; count < layers.size(); count += std::max(count / 3, std::size_t{1}))
    candidates.push_back(builder.layout(layers, count));
  candidates.push_back(builder.layout(layers, layers.size()));
  double best = time(candidates.front());
  for (const Layout& layout : candidates)
    best = std::min(best, time(layout));

  // Longest-first is a heuristic: if distributing each shape evenly gives the busiest ranks less
  // work, that plan is used.
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
