#include "optim/sharded_step.h"

#include <algorithm>
#include <utility>

#include "kernels/commit.h"
#include "optim/adamw_update.h"
#include "optim/check_sharding_plan.h"
#include "optim/muon_update.h"
#include "runtime/profile_range.h"

namespace muo::optim {
namespace {

void order(Stream& before, Event& event, Stream& after) {
  before.record(event);
  after.wait(event);
}

}  // namespace

ShardedStep::ShardedStep(const RankContext& rank, const ShardingPlan& plan,
                         std::span<const ParamSpec> params, Arena& arena, Lifespan gradients)
    : reduces_every_micro_step_(plan.reduces_every_micro_step()),
      locations_(params.size()),
      params_(params),
      rank_(rank),
      plan_(plan),
      needed_(params.size(), true),
      announced_(params.size(), true) {
  check_sharding_plan(plan, params);
  MUO_CHECK(plan.world == rank.world, "the plan is for ", plan.world, " ranks, but there are ",
            rank.world);
  const auto bytes = [&](const char* name, std::size_t size) {
    return arena.tensor({.name = name,
                         .shape = {static_cast<std::int64_t>(size)},
                         .dtype = DType::kBytes,
                         .category = MemoryCategory::kMetrics,
                         .lifespan = Lifespan::kRun});
  };
  scalars_ = bytes("step_scalars", sizeof(StepScalars));
  hyper_ = bytes("hyper_parameters", sizeof(HyperParameters));
  statistics_ = bytes("loss_statistics", sizeof(LossStatistics));
  const auto count = static_cast<std::int64_t>(params.size());
  const std::int64_t agreed_on = kRankIndices + plan.world;
  all_totals_ = arena.tensor({.name = "totals",
                              .shape = {agreed_on + count * kUpdateSquares},
                              .dtype = DType::kF64,
                              .category = MemoryCategory::kMetrics,
                              .lifespan = Lifespan::kRun});
  totals_ = all_totals_.elements(0, agreed_on);
  update_squares_ =
      all_totals_.elements(agreed_on, count * kUpdateSquares).view({count, kUpdateSquares});
  if (reduces_every_micro_step_) {
    gradients_.emplace(plan, params, rank.rank, arena);
    in_slot_.resize(gradients_->slots(), nullptr);
  }
  if (std::ranges::find(plan.buckets, ReplicaAt::kSharded, &Bucket::replica) != plan.buckets.end())
    weights_.emplace(rank, plan, params, arena);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    BucketState state;
    state.tensors = std::make_unique<BucketTensors>(
        rank, bucket, arena,
        gradients_ ? gradients_->of(b, gradients)
                   : GradientMemory{.sums = gradients, .in_place = plan.micro_steps > 1});
    state.index_bases = value_index_bases(plan, b);
    if (bucket.rule == UpdateRule::kAdamW)
      state.update = std::make_unique<AdamWUpdate>(*state.tensors, params, scalars_, arena);
    else
      state.update =
          std::make_unique<MuonUpdate>(rank, *state.tensors, plan, params, arena, scalars_,
                                       first_nonfinite(), state.index_bases.updates);
    for (std::unique_ptr<Event>* event :
         {&state.gathered, &state.ready, &state.reduced, &state.prepared, &state.exchanged,
          &state.computed, &state.committed})
      *event = rank.device.make_event();
    for (const Unit& unit : bucket.units) {
      Location& at = locations_[unit.param];
      if (at.first != nullptr) continue;
      at = {.bucket = b, .first = &unit};
      ++state.parameters;
    }
    state.missing = state.parameters;
    buckets_.push_back(std::move(state));
    reductions_.push_back({bucket.partial_tag, CallPhase::kReduce, b});
  }
  if (weights_) {
    std::vector<const BucketTensors*> tensors;
    for (const BucketState& bucket : buckets_)
      tensors.push_back(bucket.tensors.get());
    weights_->gather_from(std::move(tensors));
  }
  allocate_squares(arena);
  calls_ = bucket_calls(plan);
  next_call_ = calls_.size();
  for (std::unique_ptr<Event>* event :
       {&begun_, &loss_, &updated_, &totalled_, &agreed_, &all_committed_, &published_, &joined_})
    *event = rank.device.make_event();
  if (plan.gather == Gather::kPipelined && plan.world > 1)
    for (const std::size_t b : plan.publish_order)
      if (publish_collectives(plan.buckets[b]) > 0) gathered_first_.push_back(b);
}

void ShardedStep::allocate_squares(Arena& arena) {
  std::vector<std::int64_t> first;
  std::int64_t parts = 0;
  for (const BucketState& bucket : buckets_) {
    first.push_back(parts);
    for (UpdatePiece piece : bucket.update->pieces()) {
      piece.first = std::exchange(parts, parts + piece.parts);
      pieces_.push_back(piece);
    }
  }
  if (parts == 0) return;
  squares_ = arena.tensor({.name = "update_squares",
                           .shape = {parts, kUpdateSquares},
                           .dtype = DType::kF64,
                           .category = MemoryCategory::kMetrics,
                           .lifespan = Lifespan::kRun});
  first.push_back(parts);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (first[b] < first[b + 1])
      buckets_[b].update->sum_squares_into(squares_.rows(first[b], first[b + 1]));
}

Tensor ShardedStep::first_nonfinite() const { return totals_.row(kRankIndices + rank_.rank); }

ShardedStep::OpenStep ShardedStep::begin(std::int64_t first_micro_step) {
  const ProfileRange range(ProfileKind::kPhase, "begin");
  first_micro_step_ = first_micro_step;
  if (!gathered_first_.empty()) order(rank_.compute, *begun_, rank_.comm);
  for (const std::size_t b : gathered_first_) {
    clock_.busy(rank_.comm, [&] { buckets_[b].tensors->publish(rank_.comm); });
    rank_.comm.record(*buckets_[b].gathered);
    buckets_[b].gathering = true;
  }
  rank_.compute.zero(all_totals_);
  summed_ = false;
  advance_step(rank_.compute, {.scalars = scalars_, .hyper = hyper_});
  needed_.assign(needed_.size(), false);
  in_slot_.assign(in_slot_.size(), nullptr);  // the last step has joined all of them
  micro_step_ = plan_.reductions() - 1;
  expect_gradients();
  exchanged_bucket_ = -1;
  return OpenStep(*this);
}

ShardedStep::ForwardPass ShardedStep::begin_forward_pass(Tag first) {
  MUO_CHECK(weights_);
  weights_->begin(WeightPass::kForward, first);
  return ForwardPass(*this);
}

ShardedStep::MicroStep ShardedStep::OpenStep::micro_step(std::int64_t index) {
  step_->begin_micro_step(index);
  return {*step_, step_->reduces_every_micro_step_ || index + 1 == step_->plan_.micro_steps};
}

ShardedStep::MicroStep ShardedStep::OpenStep::last_micro_step() {
  MUO_CHECK(!step_->reduces_every_micro_step_);
  return micro_step(step_->plan_.micro_steps - 1);
}

void ShardedStep::zero_gradients() {
  for (const BucketState& bucket : buckets_)
    bucket.tensors->zero_gradient(rank_.compute);
}

void ShardedStep::expect_gradients() {
  for (BucketState& bucket : buckets_)
    bucket.missing = bucket.parameters;
  announced_.assign(announced_.size(), false);
  next_call_ = 0;
}

void ShardedStep::begin_micro_step(std::int64_t index) {
  MUO_CHECK(first_micro_step_ <= index && index < plan_.micro_steps, "micro-step ", index, " of ",
            plan_.micro_steps);
  if (weights_)
    weights_->begin(
        WeightPass::kTraining,
        plan_.weights_tag + static_cast<Tag>(index) * weights_->tags(WeightPass::kTraining));
  if (!reduces_every_micro_step_) return;
  micro_step_ = index;
  expect_gradients();
}

void ShardedStep::gradient_needed(std::size_t param) {
  if (!reduces_every_micro_step_) return;
  const std::size_t index = locations_.at(param).bucket;
  BucketState& bucket = buckets_[index];
  if (bucket.open) return;
  const BucketState*& last = in_slot_[gradients_->slot(index)];
  if (last != nullptr) {
    MUO_CHECK(!last->open, "the backward pass writes the gradient of ", params_[param].name,
              " while bucket '", last->tensors->bucket().name,
              "', which uses the same memory, is not reduced yet");
    rank_.compute.wait(*last->reduced);
  }
  bucket.open = true;
  last = &bucket;
}

void ShardedStep::join() {
  if (!reduces_every_micro_step_) return;
  order(rank_.comm, *joined_, rank_.compute);
  in_slot_.assign(in_slot_.size(), nullptr);
}

void ShardedStep::weight_needed(std::size_t param) {
  needed_.at(param) = true;
  if (is_sharded(param)) return weights_->needed(param);
  BucketState& bucket = buckets_[locations_[param].bucket];
  if (!bucket.gathering) return;
  rank_.compute.wait(*bucket.gathered);
  bucket.gathering = false;
}

void ShardedStep::gradient_ready(std::size_t param) {
  MUO_CHECK(param < announced_.size() && !announced_[param], "gradient ", param,
            " is announced twice in a step");
  MUO_CHECK(needed_[param], "the gradient of ", params_[param].name,
            " is announced, but its weight was read in this step without weight_needed()");
  announced_[param] = true;
  BucketState& bucket = buckets_[locations_[param].bucket];
  MUO_CHECK(bucket.open || !reduces_every_micro_step_, "the gradient of ", params_[param].name,
            " is announced, but was written without gradient_needed()");
  if (--bucket.missing > 0) return;
  bucket.tensors->zero_padding(rank_.compute);
  rank_.compute.record(*bucket.ready);
  advance();
}

// Enqueues calls in the order of tags, as far as the gradients so far allow.
void ShardedStep::advance() {
  const std::vector<BucketCall>& calls = is_last_reduction() ? calls_ : reductions_;
  for (; next_call_ < calls.size(); ++next_call_) {
    const BucketCall& call = calls[next_call_];
    BucketState& bucket = buckets_[call.bucket];
    switch (call.phase) {
      case CallPhase::kReduce:
        if (bucket.missing > 0) return;
        reduce(bucket, call.tag);
        break;
      case CallPhase::kExchange:
        exchange(call.bucket);
        break;
      case CallPhase::kReturn:
        return_updates(bucket);
        break;
    }
  }
}

void ShardedStep::reduce(BucketState& bucket, Tag tag) {
  rank_.comm.wait(*bucket.ready);
  const bool last = is_last_reduction();
  if (!last) tag += static_cast<Tag>(micro_step_) * plan_.tags_of_reductions();
  const bool first = micro_step_ == first_micro_step_ || !reduces_every_micro_step_;
  clock_.busy(rank_.comm, [&] { bucket.tensors->reduce(rank_.comm, tag, first); });
  bucket.open = false;
  rank_.comm.record(*bucket.reduced);
  if (!last) return;
  rank_.update.wait(*bucket.reduced);
  clock_.mark_phase(rank_.update, UpdatePhase::kCommunication);
  if (!std::exchange(summed_, true)) sum_update(rank_.update);  // concurrently with backward
  bucket.tensors->add_squares(rank_.update, totals_.row(kSquaresTotal), first_nonfinite(),
                              bucket.index_bases.gradients);
  if (bucket.tensors->bucket().exchange == Exchange::kNone)
    bucket.update->compute(rank_.update, clock_);
  else
    bucket.update->prepare(rank_.update);
  clock_.mark_phase(rank_.update, UpdatePhase::kElementwise);
}

void ShardedStep::exchange(std::size_t index) {
  BucketState& bucket = buckets_[index];
  order(rank_.update, *bucket.prepared, rank_.comm);
  clock_.busy(rank_.comm, [&] { bucket.update->exchange(rank_.comm); });
  rank_.comm.record(*bucket.exchanged);
  // After the exchange has been enqueued, so that the input of the next bucket is sent while the
  // previous bucket is computed.
  compute_exchanged();
  exchanged_bucket_ = static_cast<std::ptrdiff_t>(index);
}

void ShardedStep::compute_exchanged() {
  if (exchanged_bucket_ < 0) return;
  BucketState& bucket = buckets_[static_cast<std::size_t>(exchanged_bucket_)];
  rank_.update.wait(*bucket.exchanged);
  clock_.mark_phase(rank_.update, UpdatePhase::kCommunication);
  bucket.update->compute(rank_.update, clock_);
  clock_.mark_phase(rank_.update, UpdatePhase::kElementwise);
  rank_.update.record(*bucket.computed);
  exchanged_bucket_ = -1;
}

void ShardedStep::return_updates(BucketState& bucket) {
  if (exchanged_bucket_ >= 0 && &buckets_[static_cast<std::size_t>(exchanged_bucket_)] == &bucket)
    compute_exchanged();
  rank_.comm.wait(*bucket.computed);
  clock_.busy(rank_.comm, [&] { bucket.update->return_updates(rank_.comm); });
}

void ShardedStep::finish(const std::function<void(Stream&)>& before_counting) {
  const ProfileRange range(ProfileKind::kPhase, "finish");
  for (std::size_t i = 0; i < announced_.size(); ++i)
    MUO_CHECK(announced_[i], params_[i].name, " has no gradient in this step");
  MUO_CHECK(is_last_reduction() && next_call_ == calls_.size());
  compute_exchanged();
  order(rank_.update, *updated_, rank_.comm);
  order(rank_.compute, *loss_, rank_.comm);  // this is also after the last use of the old weights
  if (rank_.world > 1)
    clock_.busy(rank_.comm, [&] {
      rank_.communicator.all_reduce(rank_.comm, plan_.totals_tag, all_totals_, all_totals_);
    });
  order(rank_.comm, *totalled_, rank_.compute);
  if (rank_.interruption != nullptr)
    rank_.compute.before_next([interruption = rank_.interruption] { interruption->close(); });
  agree_commit(
      rank_.compute,
      {.scalars = scalars_, .statistics = statistics_, .hyper = hyper_, .totals = totals_});
  order(rank_.compute, *agreed_, rank_.update);
  clock_.mark_phase(rank_.update, UpdatePhase::kCommunication);
  for (const std::size_t b : plan_.publish_order) {
    BucketState& bucket = buckets_[b];
    bucket.update->commit(rank_.update);
    if (plan_.gather == Gather::kPipelined) continue;
    order(rank_.update, *bucket.committed, rank_.comm);
    clock_.busy(rank_.comm, [&] { bucket.tensors->publish(rank_.comm); });
  }
  clock_.mark_phase(rank_.update, UpdatePhase::kElementwise);
  if (before_counting) before_counting(rank_.compute);
  order(rank_.update, *all_committed_, rank_.compute);
  order(rank_.comm, *published_, rank_.compute);
  finish_step(rank_.compute, {.scalars = scalars_});
}

void ShardedStep::sum_update(Stream& stream) {
  sum_update_squares(stream, {.sums = update_squares_, .squares = squares_, .pieces = pieces_});
}

void ShardedStep::sum_last_update() {
  rank_.compute.zero(update_squares_);
  sum_update(rank_.compute);
  if (rank_.world == 1) return;
  order(rank_.compute, *loss_, rank_.comm);
  rank_.communicator.all_reduce(rank_.comm, plan_.totals_tag, update_squares_, update_squares_);
  order(rank_.comm, *totalled_, rank_.compute);
}

void ShardedStep::publish() {
  order(rank_.compute, *agreed_, rank_.comm);
  for (const std::size_t b : plan_.publish_order) {
    buckets_[b].tensors->refresh_replica(rank_.comm);
    buckets_[b].tensors->publish(rank_.comm);
  }
  order(rank_.comm, *published_, rank_.compute);
}

Tensor ShardedStep::weight(std::size_t param) const {
  if (is_sharded(param)) return weights_->weight(param);
  const Location& at = locations_.at(param);
  const Shape& shape = params_[param].shape;
  return buckets_[at.bucket].tensors->weight(*at.first, shape.numel()).view(shape);
}

Tensor ShardedStep::gradient(std::size_t param) const {
  const Location& at = locations_.at(param);
  const Shape& shape = params_[param].shape;
  return buckets_[at.bucket].tensors->gradient(*at.first, shape.numel()).view(shape);
}

bool ShardedStep::is_gathering(std::size_t param) const {
  if (is_sharded(param)) return weights_->may_wait(param);
  return buckets_[locations_.at(param).bucket].gathering;
}

std::vector<StateEntry> ShardedStep::state() const {
  std::vector<StateEntry> entries;
  for (const BucketState& bucket : buckets_)
    bucket.update->append_state(entries);
  return entries;
}

}  // namespace muo::optim
