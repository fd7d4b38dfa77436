#include "optim/exposed_time.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "optim/strategies/strategies.h"
#include "optim/weight_schedule.h"

namespace muo::optim {
namespace {

using strategies::Params;

// Each parameter's share of the work of a pass: proportional to its elements if it is used in a
// product, else 0.
std::vector<double> shares_of_work(Params params) {
  std::vector<double> shares;
  double all = 0;
  for (const ParamSpec& param : params) {
    const bool product = param.role == ParamRole::kMatrix || param.role == ParamRole::kUnembedding;
    all += shares.emplace_back(product ? static_cast<double>(param.shape.numel()) : 0);
  }
  for (double& share : shares)
    share = all > 0 ? share / all : 1 / static_cast<double>(shares.size());
  return shares;
}

std::vector<std::size_t> ordered_by(int ParamSpec::*place, Params params) {
  std::vector<std::size_t> order(params.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return params[i].*place; });
  return order;
}

// Simulates a step, in the order of its calls.
class Timeline {
 public:
  Timeline(const ShardingPlan& plan, Params params, const MachineRates& rates)
      : plan_(plan),
        params_(params),
        rates_(rates),
        pass_s_(rates.step_s / 3 / static_cast<double>(rates.accumulation)),
        update_(static_cast<std::size_t>(plan.world)),
        schedule_(make_weight_schedule(plan, params)),
        gathered_(schedule_.groups.size()) {}

  // Seconds from the start of the forward pass until the next step may start, if commit
  // takes `commit_s`.
  double run(double commit_s) {
    if (plan_.gather == Gather::kPipelined)
      for (const std::size_t b : plan_.publish_order)
        if (publish_collectives(plan_.buckets[b]) > 0) {
          publish(plan_.buckets[b]);
          published_[b] = comm_;
          if (rates_.loop) compute_ = comm_;
        }
    const std::vector<double> work = shares_of_work(params_);
    const std::vector<std::size_t> forward = ordered_by(&ParamSpec::use, params_);
    const std::vector<std::size_t> backward = ordered_by(&ParamSpec::ready, params_);
    for (std::int64_t m = 0; m < rates_.accumulation; ++m) {
      const bool last = m + 1 == rates_.accumulation;
      visit_ = 0;
      for (const std::size_t i : forward) {
        if (m == 0) compute_ = std::max(compute_, published_[bucket_of_[i]]);
        read_weight(i);
        compute_ += pass_s_ * work[i];
      }
      begin_gradients(last);
      for (const std::size_t i : backward) {
        if (params_[i].in_backward) read_weight(i);
        compute_ += 2 * pass_s_ * work[i];
        if (last || plan_.reduces_every_micro_step()) gradient_ready(i);
      }
    }
    compute_exchanged();
    // Agreement: after all ranks have computed, and the backward pass has ended.
    comm_ = std::max({comm_, busiest(), compute_});
    if (plan_.world > 1) take(rates_.link_latency_s);
    comm_ += commit_s;
    if (plan_.gather == Gather::kSimple)
      for (const std::size_t b : plan_.publish_order)
        publish(plan_.buckets[b]);
    return comm_;
  }
  [[nodiscard]] double communication() const { return communication_; }
  [[nodiscard]] double box_bytes() const { return box_bytes_; }

 private:
  // Links are full duplex.
  static std::int64_t BucketBytes::*exchanged_bytes(const Bucket& bucket) {
    return bucket.exchange == Exchange::kGatherToOwner ? &BucketBytes::owners
                                                       : &BucketBytes::exchange;
  }
  void take(double seconds) {
    comm_ += seconds;
    communication_ += seconds;
  }
  void communicate(double ready, int collectives, std::int64_t BucketBytes::*phase,
                   const Bucket& bucket) {
    comm_ = std::max(comm_, ready);
    if (plan_.world == 1) return;
    std::int64_t bytes = 0;
    for (int rank = 0; rank < plan_.world; ++rank)
      bytes = std::max(bytes, bucket_bytes(bucket, rank, plan_.world).*phase);
    const bool ring = phase == &BucketBytes::reduce || phase == &BucketBytes::publish;
    send(collectives, static_cast<double>(bytes), ring);
  }
  // Sends `bytes`, those of the busiest rank, in a ring or directly to each other rank.
  void send(int collectives, double bytes, bool ring) {
    double seconds = bytes / rates_.link_bytes_per_s;
    const int there = rates_.ranks_per_box;
    if (there > 0 && there < plan_.world) {
      const double of_box =
          ring ? bytes : bytes * there * (plan_.world - there) / (plan_.world - 1);
      box_bytes_ += of_box;
      seconds = std::max(seconds, of_box / rates_.box_bytes_per_s);
    }
    take(collectives * rates_.link_latency_s + seconds);
  }
  // Models GatheredWeights, for sharded weights.
  void read_weight(std::size_t param) {
    const int stage = schedule_.stage_of[param];
    if (stage == kReplicated) return;
    while (visit_ == 0 || schedule_.training[visit_ - 1].stage != stage) {
      const std::span<const WeightSchedule::Visit> visit(&schedule_.training.at(visit_++), 1);
      const std::int64_t collectives = schedule_.collectives(visit);
      if (collectives == 0) continue;
      std::int64_t bytes = 0;
      for (int rank = 0; rank < plan_.world; ++rank)
        bytes = std::max(bytes, schedule_.sent_bytes(visit, plan_, rank));
      comm_ = std::max(comm_, compute_);
      send(static_cast<int>(collectives), static_cast<double>(bytes), /*ring=*/true);
      for (const std::size_t group : visit[0].gathers)
        gathered_[group] = comm_;
    }
    for (std::size_t g = 0; g < schedule_.groups.size(); ++g)
      if (schedule_.groups[g].first <= stage && stage <= schedule_.groups[g].last)
        compute_ = std::max(compute_, gathered_[g]);
  }
  void begin_gradients(bool last) {
    calls_.clear();
    if (last)
      calls_ = bucket_calls(plan_);
    else
      for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
        calls_.push_back({.phase = CallPhase::kReduce, .bucket = b});
    next_call_ = 0;
    last_ = last;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
      gradients_missing_[b] = std::ranges::count(bucket_of_, b);
  }
  void gradient_ready(std::size_t param) {
    const std::size_t bucket = bucket_of_[param];
    if (--gradients_missing_[bucket] > 0) return;
    ready_[bucket] = compute_;
    for (; next_call_ < calls_.size(); ++next_call_) {
      const BucketCall& call = calls_[next_call_];
      if (call.phase == CallPhase::kReduce && gradients_missing_[call.bucket] > 0) return;
      enqueue(call);
    }
  }
  void enqueue(const BucketCall& call) {
    const Bucket& bucket = plan_.buckets[call.bucket];
    if (call.phase == CallPhase::kReduce) {
      communicate(ready_[call.bucket], reduce_collectives(bucket), &BucketBytes::reduce, bucket);
      if (!last_) return;
      for (double& update : update_)
        update = std::max(update, comm_);
      if (bucket.exchange == Exchange::kNone) compute(bucket);
    } else if (call.phase == CallPhase::kExchange) {
      communicate(busiest(), exchange_collectives(bucket), exchanged_bytes(bucket), bucket);
      const double exchanged = comm_;
      compute_exchanged();
      exchanged_ = &bucket;
      exchanged_s_ = exchanged;
    } else {
      if (exchanged_ == &bucket) compute_exchanged();
      communicate(computed_[call.bucket], return_collectives(bucket), exchanged_bytes(bucket),
                  bucket);
    }
  }
  void publish(const Bucket& bucket) {
    communicate(0, publish_collectives(bucket), &BucketBytes::publish, bucket);
  }
  void compute(const Bucket& bucket) {
    const std::vector<double> flops =
        strategies::flops_by_rank(bucket, params_, plan_.world, *plan_.newton_schulz);
    for (std::size_t rank = 0; rank < update_.size(); ++rank)
      update_[rank] += flops[rank] / rates_.gemm_flops_per_s;
  }
  void compute_exchanged() {
    if (exchanged_ == nullptr) return;
    for (double& update : update_)
      update = std::max(update, exchanged_s_);
    compute(*exchanged_);
    computed_[static_cast<std::size_t>(exchanged_ - plan_.buckets.data())] = busiest();
    exchanged_ = nullptr;
  }
  [[nodiscard]] std::vector<std::size_t> buckets_by_parameter() const {
    std::vector<std::size_t> out(params_.size());
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
      for (const Unit& unit : plan_.buckets[b].units)
        out[unit.param] = b;
    return out;
  }
  [[nodiscard]] double busiest() const { return *std::ranges::max_element(update_); }

  const ShardingPlan& plan_;
  Params params_;
  const MachineRates& rates_;
  double pass_s_;               // time of a forward pass
  double compute_ = 0;          // current time of the stream
  double comm_ = 0;             // time at which the stream is free
  std::vector<double> update_;  // time at which each rank's update stream is free
  double communication_ = 0, box_bytes_ = 0;
  std::vector<std::size_t> bucket_of_ = buckets_by_parameter();
  // By bucket: the time at which its weights are available, the time at which its gradients are
  // available, and the number of missing gradients.
  std::vector<double> published_ = std::vector<double>(plan_.buckets.size());
  std::vector<double> ready_ = published_;
  std::vector<std::ptrdiff_t> gradients_missing_ =
      std::vector<std::ptrdiff_t>(plan_.buckets.size());
  std::vector<BucketCall> calls_ = {};
  std::size_t next_call_ = 0;
  bool last_ = false;  // the current micro-step is the last
  WeightSchedule schedule_;
  std::vector<double> gathered_;  // time of each gather, by group of the schedule
  std::size_t visit_ = 0;
  const Bucket* exchanged_ = nullptr;  // exchanged, but not computed yet
  double exchanged_s_ = 0;
  std::vector<double> computed_ = std::vector<double>(plan_.buckets.size());
};

}  // namespace

ExposedTime exposed_time(const ShardingPlan& plan, std::span<const ParamSpec> params,
                         const MachineRates& rates) {
  MUO_CHECK(rates.link_bytes_per_s > 0 && rates.box_bytes_per_s > 0 && rates.ranks_per_box >= 0 &&
            rates.gemm_flops_per_s > 0 && rates.memory_bytes_per_s > 0 &&
            rates.link_latency_s >= 0 && rates.step_s >= 0 && rates.accumulation > 0);
  constexpr double kNoTime = std::numeric_limits<double>::infinity();
  const PlanCost cost = plan_cost(plan, params);
  ExposedTime out;
  out.newton_schulz_s = *std::ranges::max_element(cost.muon_flops) / rates.gemm_flops_per_s;
  out.commit_s =
      static_cast<double>(*std::ranges::max_element(cost.commit_bytes)) / rates.memory_bytes_per_s;
  const auto added = [&](const MachineRates& machine) {
    return Timeline(plan, params, machine).run(out.commit_s) - rates.step_s;
  };
  Timeline timeline(plan, params, rates);
  out.update_s = timeline.run(out.commit_s) - rates.step_s;
  out.communication_s = timeline.communication();
  out.box_bytes = timeline.box_bytes();
  MachineRates other = rates;
  other.link_bytes_per_s = other.box_bytes_per_s = kNoTime;
  other.link_latency_s = 0;
  out.communication_exposed_s = out.update_s - added(other);
  other = rates;
  other.gemm_flops_per_s = kNoTime;
  out.newton_schulz_exposed_s = out.update_s - added(other);
  return out;
}

}  // namespace muo::optim
