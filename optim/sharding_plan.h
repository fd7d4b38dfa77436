#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/enum_names.h"
#include "optim/element_ranges.h"
#include "optim/newton_schulz_form.h"
#include "optim/number_formats.h"
#include "optim/optimizer_version.h"
#include "optim/update_groups.h"
#include "runtime/comm/communicator.h"
#include "runtime/parameter.h"

namespace muo::optim {

// A strategy is data: this table, executed by ShardedStep. Plans are pure functions of parameters,
// world and strategy; no other code depends on a strategy's name.

enum class Reduction : std::uint8_t { kAllReduce, kReduceScatter, kReduceToOwner };
constexpr auto names_of(Reduction) {
  return name_list("all-reduce", "reduce-scatter", "reduce to owner");
}
enum class StateAt : std::uint8_t { kEveryRank, kOwner, kElements };
enum class Exchange : std::uint8_t { kNone, kAllGather, kGatherToOwner, kAllToAll };
constexpr auto names_of(Exchange) {
  return name_list("none", "all-gather", "gather to owner", "all-to-all");
}
enum class ComputeAt : std::uint8_t { kEveryRank, kOwner };
enum class Return : std::uint8_t { kNone, kOwnSlice, kScatter, kAllToAll };
enum class Publish : std::uint8_t { kNone, kAllGather, kAllGatherV };
constexpr auto names_of(Publish) { return name_list("none", "all-gather", "all-gather-v"); }
// How ranks' segments divide: the full space, or each unit by itself. In the latter case, a unit
// and the padding behind it form a block, which has its own reduction and publication, and a
// rank's segment is the concatenation of its equal parts of all blocks. Each matrix is thus
// spread over all ranks.
enum class Cut : std::uint8_t { kWhole, kEachUnit };
// When updated weights are sent: in the step that commits them, or at the start of the next step,
// overlapped with its forward pass. The results of steps are bitwise equal.
enum class Gather : std::uint8_t { kSimple, kPipelined };
constexpr auto names_of(Gather) { return name_list("simple", "pipelined"); }
// Data sharded over ranks; each level includes the previous ones, as in ZeRO (Rajbhandari et al.
// 2020): nothing; masters and optimizer state; gradients; weights (ReplicaAt::kSharded). With
// sharded gradients, those of each micro-step are reduced, and a rank accumulates its part of the
// sum over ranks, so that the whole gradient of a bucket lives only from its backward pass to its
// reduction. Without, each rank accumulates whole gradients, which are reduced once.
enum class Shard : std::uint8_t { kNone, kOptimizer, kGradients, kWeights };
constexpr auto names_of(Shard) { return name_list("none", "optimizer", "gradients", "weights"); }
// Where the weights that passes read are. Every rank has its own copy; or all ranks, being threads
// of one host, share one copy, which the owners write, and publishing is only a barrier; or a rank
// holds only its segment, each pass over the model gathers what a layer reads before the layer
// (weight_schedule.h), and nothing is published.
enum class ReplicaAt : std::uint8_t { kEveryRank, kCommon, kSharded };
constexpr auto names_of(ReplicaAt) { return name_list("own", "common", "sharded"); }
// Rounding of bf16 state when it is stored: to nearest, or stochastic (base/stochastic_rounding.h).
enum class StateRounding : std::uint8_t { kNearest, kStochastic };

inline constexpr int kEveryRank = -1;

// Adjacent elements of one parameter that are updated as a whole: a whole matrix for Muon, whole
// rows of a row-sliced AdamW parameter, or a whole small parameter.
struct Unit {
  std::size_t param = 0;   // index into the ParamSpecs
  std::int64_t begin = 0;  // range of the parameter's elements, flat
  std::int64_t end = 0;
  int owner = kEveryRank;   // computes the update, and is the only writer of the master
  std::int64_t offset = 0;  // position of `begin` in the bucket's full space, in elements
  int adam_group = 0;       // AdamW: index into HyperParameters::adam
};

// A bucket's full space consists of `world` segments of segment(r) elements each; it is the layout
// of gradients, weight replica and the buffers of collectives. Each parameter is contiguous in it.
// Elements that no unit covers are padding, and zero.
struct Bucket {
  std::string name;  // for output, NVTX and error messages
  UpdateRule rule = UpdateRule::kAdamW;
  std::vector<Unit> units = {};             // ascending by offset
  std::vector<std::int64_t> segments = {};  // elements of rank r's part of the full space
  Cut cut = Cut::kWhole;
  Reduction reduction = Reduction::kReduceScatter;
  StateAt state = StateAt::kOwner;
  Exchange exchange = Exchange::kNone;
  ComputeAt compute = ComputeAt::kOwner;
  Return returns = Return::kNone;
  Publish publish = Publish::kAllGather;
  ReplicaAt replica = ReplicaAt::kEveryRank;
  // These are equal for all parameters of a bucket. Reduced gradients and masters are fp32, but
  // bf16 gradients stay bf16 in a world of one, and in the sums of an all-reduce. Gradients are
  // rounded to their wire dtype when they are sent, and summed in fp32. If the plan exchanges, the
  // Nesterov input is rounded again when it is sent to Newton-Schulz, and so is the update when it
  // is sent back. An all-reduce rounds the sum as well.
  DType replica_dtype = DType::kF32;  // dtype of the weights that passes read
  bool split_master = false;          // master = replica + 16 bits: base/split_float.h
  DType state_dtype = DType::kF32;    // dtype of Muon's momentum or AdamW's moments
  StateRounding state_rounding = StateRounding::kNearest;  // rounding of bf16 state
  DType gradient_dtype = DType::kF32;  // as computed; bf16 only if nothing is added to it
  DType gradient_wire = DType::kF32;
  DType weight_wire = DType::kF32;
  // Ascending tags, including ShardingPlan::totals_tag, define the total order of all collectives,
  // in which the executor enqueues them. 0: none. If a phase consists of several collectives, their
  // tags are consecutive, starting with this one.
  Tag reduce_tag = 0, exchange_tag = 0, return_tag = 0, publish_tag = 0;
  Tag partial_tag = 0;  // of the first micro-step's reductions, if it is not the last micro-step

  [[nodiscard]] std::int64_t full_elements() const;  // sum of segments
  [[nodiscard]] std::int64_t segment_begin(int rank) const;
};

// The number of collectives of each kind that a bucket has. It is one, with these exceptions: a
// reduction to owners has one per rank, a gather to the owner and a scatter have one per unit, and
// everything that is cut by units has one per block.
int reduce_collectives(const Bucket& bucket);
int exchange_collectives(const Bucket& bucket);
int return_collectives(const Bucket& bucket);
int publish_collectives(const Bucket& bucket);

// Whether the rank computes the unit's update.
bool computes(const Bucket& bucket, const Unit& unit, int rank);
Range unit_range(const Unit& unit);
Range owner_range(const Bucket& bucket, int rank);  // from its first unit to the end of its last
// The ranges that are cut; a single one if the cut is kWhole.
std::vector<Range> blocks(const Bucket& bucket);
Range segment_of_block(const Bucket& bucket, Range block, int rank);
Range segment_range(const Bucket& bucket, int rank);  // requires Cut::kWhole

struct ShardingPlan {
  int world = 1;
  std::string strategy;
  std::vector<Bucket> buckets = {};             // in the order of reduction and compute
  std::vector<std::size_t> publish_order = {};  // bucket indices, in the order of the forward pass
  // The computation, which is independent of the owners.
  const OptimizerVersion* version = &optimizer_versions().front();
  const NewtonSchulzForm* newton_schulz = &newton_schulz_forms().front();
  std::int64_t newton_schulz_steps = kNewtonSchulzSteps;
  Gather gather = Gather::kSimple;  // publications are last (kSimple) or first (kPipelined)
  Shard shard = Shard::kOptimizer;
  std::int64_t micro_steps = 1;  // per step
  Tag totals_tag = 0;            // after all reductions
  // First tag of the gathers of sharded weights. These are numbered separately, in the order
  // of the model's passes, after all other tags; the backward pass determines their place
  // among the others.
  Tag weights_tag = 0;

  [[nodiscard]] bool reduces_every_micro_step() const {
    return shard >= Shard::kGradients && world > 1;
  }
  // Number of times that a step reduces each bucket.
  [[nodiscard]] std::int64_t reductions() const {
    return reduces_every_micro_step() ? micro_steps : 1;
  }
  // Number of tags that the reductions of all buckets use in one micro-step. The reductions
  // of micro-step m have a bucket's partial_tag + m times this number; those of the last one
  // have its reduce_tag.
  [[nodiscard]] Tag tags_of_reductions() const;
};

// The calls for the last, or only, reductions of a plan and for the phases after them, up to the
// totals, in the order of their tags, which is the order in which they are enqueued.
enum class CallPhase : std::uint8_t { kReduce, kExchange, kReturn };
struct BucketCall {
  Tag tag = 0;
  CallPhase phase = CallPhase::kReduce;
  std::size_t bucket = 0;
};
std::vector<BucketCall> bucket_calls(const ShardingPlan& plan);

// All strategies; the default comes first. docs/strategies.md compares them.
struct Strategy {
  std::string_view name;
  std::string_view summary;                                 // one line
  Shard least = Shard::kOptimizer, most = Shard::kWeights;  // levels of sharding that it supports
};
std::span<const Strategy> strategy_list();
std::span<const std::string_view> strategy_names();
const Strategy& strategy_of(std::string_view name);  // throws InputError like make_sharding_plan

// Throws InputError for an unknown strategy, and lists the known ones. `shard` must not exceed the
// strategy's maximum.
ShardingPlan make_sharding_plan(std::span<const ParamSpec> params, int world,
                                std::string_view strategy, const NumberFormats& formats = {},
                                Gather gather = Gather::kSimple,
                                const NewtonSchulzForm& form = newton_schulz_forms().front(),
                                Shard shard = Shard::kOptimizer);

// Makes replicas common (ReplicaAt) for all buckets that are published without conversion.
void share_replicas(ShardingPlan& plan);

// Assigns the tags of all collectives of a plan whose other fields are set, in the order of a
// step: those of its buckets, in every micro-step that reduces them, and those of publish_order
// before or after them.
void assign_tags(ShardingPlan& plan);

// Bytes of a bucket that a rank sends in a step, by phase, without gathers of sharded weights
// (weight_schedule.h). They are counted as in Communicator::bytes_sent(); bytes that an owner
// gathers, and scatters to others, count as well.
struct BucketBytes {
  std::int64_t reduce = 0, exchange = 0, returns = 0, publish = 0;
  std::int64_t owners = 0;  // the busier direction of an exchange with owners, or of its return
  [[nodiscard]] std::int64_t sum() const { return reduce + exchange + returns + publish; }
};
BucketBytes bucket_bytes(const Bucket& bucket, int rank, int world);

// The cost of a plan, printed by `muograph plan` and checked by tests of balance.
struct PlanCost {
  std::vector<double> muon_flops;        // per rank
  std::vector<std::int64_t> sent_bytes;  // per rank, without padding
  // Per rank, read and written by commit: masters, replicas, state, updates and gradients.
  std::vector<std::int64_t> commit_bytes;
  double balance = 1;  // ideal work over the sum of per-bucket maxima; 1 is best
  std::int64_t padding_elements = 0;
};
PlanCost plan_cost(const ShardingPlan& plan, std::span<const ParamSpec> params);

}  // namespace muo::optim
