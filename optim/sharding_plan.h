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

// A strategy is data: this table, run by one executor (ShardedStep). Plans are pure functions of
// parameters, world and strategy; nothing else in the program knows a strategy's name.

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
// What is cut into the ranks' segments: the full space, or each unit by itself. Then a unit and the
// padding behind it are a block, with a reduction and a publication of its own, and a rank's
// segment is its equal part of every block, one after another. So a matrix is spread over all
// ranks.
enum class Cut : std::uint8_t { kWhole, kEachUnit };
// When updated weights travel: in the step that commits them, or at the head of the next one,
// beside its forward pass. Bitwise the same steps.
enum class Gather : std::uint8_t { kSimple, kPipelined };
constexpr auto names_of(Gather) { return name_list("simple", "pipelined"); }
// What is sharded over ranks, each with what is before it, as the stages of ZeRO (Rajbhandari et
// al. 2020): nothing; masters and state of the optimizer; gradients: each micro-step's are reduced
// and a rank adds to its part of the sum over ranks, so that a bucket's whole gradient lives from
// its backward to its reduction only, where else each rank adds to its own whole ones and all are
// reduced once; weights (ReplicaAt::kSharded).
enum class Shard : std::uint8_t { kNone, kOptimizer, kGradients, kWeights };
constexpr auto names_of(Shard) { return name_list("none", "optimizer", "gradients", "weights"); }
// Where the weights that forward reads live: every rank has its own; or all ranks, being threads of
// one host, have one in common, owners write to it, and publishing is only that all wait for all;
// or a rank holds its segment of them only, and each pass over the model gathers what a layer reads
// before it does (weight_schedule.h), so that nothing is published.
enum class ReplicaAt : std::uint8_t { kEveryRank, kCommon, kSharded };
constexpr auto names_of(ReplicaAt) { return name_list("own", "common", "sharded"); }
// How state of bf16 is rounded as it is stored: base/stochastic_rounding.h, or to nearest.
enum class StateRounding : std::uint8_t { kNearest, kStochastic };

inline constexpr int kEveryRank = -1;

// A run of elements of one parameter that is updated as a whole: a whole matrix for Muon, whole
// rows of a row-sliced AdamW parameter, or a whole small parameter.
struct Unit {
  std::size_t param = 0;   // index into the ParamSpecs
  std::int64_t begin = 0;  // elements of the parameter, flat
  std::int64_t end = 0;
  int owner = kEveryRank;   // computes it, and is the only writer of its master
  std::int64_t offset = 0;  // of `begin`, in elements of the bucket's full space
  int adam_group = 0;       // of AdamW: index into HyperParameters::adam
};

// A bucket's full space is `world` segments of segment(r) elements each; gradients, weight replica
// and the collectives' buffers have its layout. A parameter is contiguous in it. Elements that no
// unit covers are padding, and hold zero.
struct Bucket {
  std::string name;  // for people, NVTX and errors
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
  // A bucket's parameters are alike in these. Reduced gradients and masters are fp32; but where
  // gradients are bf16, those of a world of one and the sums of an all-reduce are what they are.
  // Gradients are rounded to their wire's type when they are sent, and summed in fp32; where the
  // plan exchanges them, the Nesterov input is rounded once more on its way to Newton-Schulz, and
  // the update on its way back. An all-reduce rounds the sum as well.
  DType replica_dtype = DType::kF32;  // of the weights that forward reads
  bool split_master = false;          // between replica and 16 bits: base/split_float.h
  DType state_dtype = DType::kF32;    // of Muon's momentum, of AdamW's moments
  StateRounding state_rounding = StateRounding::kNearest;  // of state of bf16
  DType gradient_dtype = DType::kF32;  // that backward writes: bf16 where nothing is added to it
  DType gradient_wire = DType::kF32;
  DType weight_wire = DType::kF32;
  // Together with ShardingPlan::totals_tag, ascending tags are the one order of all collectives:
  // the executor enqueues them in it. 0: there is none. Where a phase is several collectives, their
  // tags start with this one.
  Tag reduce_tag = 0, exchange_tag = 0, return_tag = 0, publish_tag = 0;
  Tag partial_tag = 0;  // of the first micro-step's reductions, where it is not the last

  [[nodiscard]] std::int64_t full_elements() const;  // sum of segments
  [[nodiscard]] std::int64_t segment_begin(int rank) const;
};

// How many collectives of each kind a bucket has: one, except that a reduction to owners has one
// per rank, a gather to the owner and a scatter one per unit, and everything cut by units one per
// block.
int reduce_collectives(const Bucket& bucket);
int exchange_collectives(const Bucket& bucket);
int return_collectives(const Bucket& bucket);
int publish_collectives(const Bucket& bucket);

bool computes(const Bucket& bucket, const Unit& unit, int rank);  // the rank, the unit's update
Range unit_range(const Unit& unit);
Range owner_range(const Bucket& bucket, int rank);  // from its first unit to the end of its last
std::vector<Range> blocks(const Bucket& bucket);    // that are cut; one where the cut is kWhole
Range segment_of_block(const Bucket& bucket, Range block, int rank);
Range segment_range(const Bucket& bucket, int rank);  // of a bucket that is cut as a whole

struct ShardingPlan {
  int world = 1;
  std::string strategy;
  std::vector<Bucket> buckets = {};             // in the order of reduction and compute
  std::vector<std::size_t> publish_order = {};  // bucket indices, in the order of the next forward
  // What is computed, beside who computes it.
  const OptimizerVersion* version = &optimizer_versions().front();
  const NewtonSchulzForm* newton_schulz = &newton_schulz_forms().front();
  std::int64_t newton_schulz_steps = kNewtonSchulzSteps;
  Gather gather = Gather::kSimple;  // publications come last, or first
  Shard shard = Shard::kOptimizer;
  std::int64_t micro_steps = 1;  // of a step
  Tag totals_tag = 0;            // after all reductions
  // The first one of the gathers of sharded weights. They are numbered by themselves, in the order
  // of the model's passes, behind all others: where they fall among these follows from backward.
  Tag weights_tag = 0;

  [[nodiscard]] bool reduces_every_micro_step() const {
    return shard >= Shard::kGradients && world > 1;
  }
  // How often a step reduces each bucket.
  [[nodiscard]] std::int64_t reductions() const {
    return reduces_every_micro_step() ? micro_steps : 1;
  }
  // Tags that the reductions of all buckets take in one micro-step: those of micro-step m have a
  // bucket's partial_tag + m times this, those of the last its reduce_tag.
  [[nodiscard]] Tag tags_of_reductions() const;
};

// The calls of a plan's last, or only, reductions and of what follows from them, up to the totals:
// in the order of their tags, in which they are enqueued.
enum class CallPhase : std::uint8_t { kReduce, kExchange, kReturn };
struct BucketCall {
  Tag tag = 0;
  CallPhase phase = CallPhase::kReduce;
  std::size_t bucket = 0;
};
std::vector<BucketCall> bucket_calls(const ShardingPlan& plan);

// The strategies of this program, the default first. docs/strategies.md compares them.
struct Strategy {
  std::string_view name;
  std::string_view summary;                                 // one line
  Shard least = Shard::kOptimizer, most = Shard::kWeights;  // of what it can shard
};
std::span<const Strategy> strategy_list();
std::span<const std::string_view> strategy_names();
const Strategy& strategy_of(std::string_view name);  // throws InputError, as make_sharding_plan

// Throws InputError for an unknown strategy, naming the known ones. `shard` is at most what the
// strategy can.
ShardingPlan make_sharding_plan(std::span<const ParamSpec> params, int world,
                                std::string_view strategy, const NumberFormats& formats = {},
                                Gather gather = Gather::kSimple,
                                const NewtonSchulzForm& form = newton_schulz_forms().front(),
                                Shard shard = Shard::kOptimizer);

// Makes the replicas common (ReplicaAt) of all buckets that are published as they are committed.
void share_replicas(ShardingPlan& plan);

// Numbers all collectives of a plan whose other fields are set, in the order of a step: of its
// buckets, in every micro-step that reduces them, and of publish_order before or after them.
void assign_tags(ShardingPlan& plan);

// Bytes of a bucket that a rank sends in a step, but for gathers of sharded weights
// (weight_schedule.h), by phase, as Communicator::bytes_sent() counts
// them: what an owner gathers, and what it scatters to others, counts as well.
struct BucketBytes {
  std::int64_t reduce = 0, exchange = 0, returns = 0, publish = 0;
  std::int64_t owners = 0;  // of such an exchange, or its return: the busier direction
  [[nodiscard]] std::int64_t sum() const { return reduce + exchange + returns + publish; }
};
BucketBytes bucket_bytes(const Bucket& bucket, int rank, int world);

// What `muograph plan` prints per rank, and the balance tests check.
struct PlanCost {
  std::vector<double> muon_flops;        // per rank
  std::vector<std::int64_t> sent_bytes;  // per rank, true sizes
  // Per rank, that commit reads and writes: masters, replicas, state, updates and gradients.
  std::vector<std::int64_t> commit_bytes;
  double balance = 1;  // ideal over the sum of per-bucket maxima; 1 is best
  std::int64_t padding_elements = 0;
};
PlanCost plan_cost(const ShardingPlan& plan, std::span<const ParamSpec> params);

}  // namespace muo::optim
