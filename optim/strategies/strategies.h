#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/sharding_plan.h"

namespace muo::strategies {

// What a strategy returns: its buckets, without tags, in any order. Each is a pure function.
using Buckets = std::vector<Bucket>;
using Params = std::span<const ParamSpec>;
using Members = std::vector<std::size_t>;  // indices of parameters

Buckets balanced(Params params, int world);
Buckets ddp(Params params, int world);
Buckets stacked(Params params, int world);

// --- building blocks

// Matrices that Muon updates, in the order of the model.
Members muon_members(Params params);
// AdamW: every large parameter row-sliced in a bucket of its own, all small ones of a number class
// replicated in one.
Buckets sharded_adamw(Params params, int world);
// One all-reduced bucket of parameters of one rule and number class, updated by every rank.
Bucket replicated_bucket(Params params, const Members& members, int world);
// One reduce-scattered bucket of whole matrices; owners[i] owns members[i]. Within a segment equal
// shapes are adjacent.
Bucket owned_bucket(Params params, const Members& members, const std::vector<int>& owners,
                    int world);
// When backward completes the bucket, and when forward first reads it.
int last_ready(const Bucket& bucket, Params params);
int first_use(const Bucket& bucket, Params params);
// Newton-Schulz FLOPs of the bucket: of every rank, and of the busiest.
std::vector<double> flops_by_rank(const Bucket& bucket, Params params, int world);
double busiest_flops(const Bucket& bucket, Params params, int world);
bool shape_less(const Shape& a, const Shape& b);  // as tuples

// Offsets of runs of equal units and sizes of segments are multiples of this: 256 bytes of fp32.
inline constexpr std::int64_t kAlignElements = 64;
constexpr std::int64_t align_elements(std::int64_t n) {
  return (n + kAlignElements - 1) / kAlignElements * kAlignElements;
}

}  // namespace muo::strategies
