#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/sharding_plan.h"

namespace muo::optim::strategies {

// What a strategy returns: its buckets, without tags, in any order. Each is a pure function.
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

// Matrices that Muon updates, in the order of the model.
Members muon_members(Params params);
// The same, of one shape each, shapes ascending.
std::vector<Members> by_shape(Params params);
// The same, of one layer each (ParamSpec::layer), in the order in which backward completes them.
std::vector<Members> layers_backward(Params params);
// In the order in which backward completes them.
Members backward_order(Params params, Members members);
// Consecutive members, of about 25 MiB together: large enough for a link to be busy.
std::vector<Members> runs_of_bytes(Params params, const Members& members);
// Consecutive members, `count` each.
std::vector<Members> blocks_of(const Members& members, std::size_t count);
std::vector<int> one_each(const Members& members);  // owners: member i at rank i

// AdamW: every large parameter row-sliced in a bucket of its own, all small ones of a number class
// replicated in one.
Buckets sharded_adamw(Params params, int world);
// One all-reduced bucket of parameters of one rule and number class, updated by every rank.
Bucket replicated_bucket(Params params, const Members& members, int world);
// One bucket of whole matrices; owners[i] owns members[i]. Within a segment equal shapes are
// adjacent. Equal segments are reduce-scattered and all-gathered.
enum class Segments : std::uint8_t { kEqual, kOwnSize };
Bucket owned_bucket(Params params, const Members& members, const std::vector<int>& owners,
                    int world, Segments sizes = Segments::kEqual);
// One bucket of matrices whose elements are cut into equal parts, and which every rank computes.
Bucket element_bucket(Params params, const Members& members, int world);
// One bucket of matrices that are each cut into equal parts, of which every rank holds one;
// owners[i], different ones, compute members[i]. The caller says how they get them.
Bucket spread_bucket(Params params, const Members& members, const std::vector<int>& owners,
                     int world);
// When backward completes the bucket, and when forward first reads it.
int last_ready(const Bucket& bucket, Params params);
int first_use(const Bucket& bucket, Params params);
// Newton-Schulz FLOPs of the bucket: of every rank, and of the busiest.
std::vector<double> flops_by_rank(const Bucket& bucket, Params params, int world,
                                  const NewtonSchulzForm& form);
double busiest_flops(const Bucket& bucket, Params params, int world, const NewtonSchulzForm& form);
bool shape_less(const Shape& a, const Shape& b);  // as tuples

// Offsets of runs of equal units and sizes of segments are multiples of this: 256 bytes of fp32.
inline constexpr std::int64_t kAlignElements = 64;
constexpr std::int64_t align_elements(std::int64_t n) {
  return (n + kAlignElements - 1) / kAlignElements * kAlignElements;
}

}  // namespace muo::optim::strategies
