#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/sharding_plan.h"

namespace muo::optim::strategies {

// A strategy returns its buckets, without tags, in any order. All strategies are pure functions.
using Buckets = std::vector<Bucket>;
using Params = std::span<const ParamSpec>;
using Members = std::vector<std::size_t>;  // indices of parameters

Buckets all_to_all(Params params, int world);
Buckets allreduce_owner(Params params, int world);
Buckets balanced(Params params, int world, const NewtonSchulzForm& form);
Buckets block_cyclic(Params params, int world);
Buckets ddp(Params params, int world);
Buckets layerwise(Params params, int world);
Buckets ns_replicated(Params params, int world);
Buckets parallel(Params params, int world, const NewtonSchulzForm& form, Shard shard);
Buckets parallel_round_robin(Params params, int world);
Buckets stacked(Params params, int world);

// --- building blocks

// All matrices that Muon updates, in the order of the model.
Members muon_members(Params params);
// The same, grouped by shape, with shapes in ascending order.
std::vector<Members> by_shape(Params params);
// The same, grouped by layer (ParamSpec::layer), in the order in which the backward
// pass completes them.
std::vector<Members> layers_backward(Params params);
// Members sorted by the order in which the backward pass completes them.
Members backward_order(Params params, Members members);
// Groups of consecutive members of about 25 MiB together, which is enough to keep a link busy.
std::vector<Members> runs_of_bytes(Params params, const Members& members);
// Groups of `count` consecutive members.
std::vector<Members> blocks_of(const Members& members, std::size_t count);
std::vector<int> one_each(const Members& members);  // owners: member i on rank i

// AdamW: each large parameter is sliced by rows in a bucket of its own; all small parameters of a
// number class are replicated in one bucket.
Buckets sharded_adamw(Params params, int world);
// An all-reduced bucket of parameters of one rule and number class, which every rank updates.
Bucket replicated_bucket(Params params, const Members& members, int world);
// A bucket of whole matrices; owners[i] owns members[i]. Within a segment, equal shapes are
// adjacent. If segments are equal, the bucket is reduce-scattered and all-gathered.
enum class Segments : std::uint8_t { kEqual, kOwnSize };
Bucket owned_bucket(Params params, const Members& members, const std::vector<int>& owners,
                    int world, Segments sizes = Segments::kEqual);
// A bucket of matrices that is divided by elements into equal parts, and that every rank computes.
Bucket element_bucket(Params params, const Members& members, int world);
// A bucket of matrices, each divided into equal parts, one per rank. owners[i], which differ,
// compute members[i]. The caller sets the exchange.
Bucket spread_bucket(Params params, const Members& members, const std::vector<int>& owners,
                     int world);
// The time at which the backward pass completes the bucket, and the time at which the forward
// pass first reads it.
int last_ready(const Bucket& bucket, Params params);
int first_use(const Bucket& bucket, Params params);
// Newton-Schulz FLOPs of the bucket: by rank, and those of the busiest rank.
std::vector<double> flops_by_rank(const Bucket& bucket, Params params, int world,
                                  const NewtonSchulzForm& form);
double busiest_flops(const Bucket& bucket, Params params, int world, const NewtonSchulzForm& form);
bool shape_less(const Shape& a, const Shape& b);  // lexicographic

// Alignment of the offsets of runs of equal units and of segment sizes: 256 bytes of fp32.
inline constexpr std::int64_t kAlignElements = 64;
constexpr std::int64_t align_elements(std::int64_t n) {
  return (n + kAlignElements - 1) / kAlignElements * kAlignElements;
}

}  // namespace muo::optim::strategies
