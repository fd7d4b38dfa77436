#include "optim/exposed_time.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "optim/strategies/strategies.h"

namespace muo {
namespace {

using strategies::Params;

// When compute is where, from the start of a pass over the model.
class Model {
 public:
  Model(Params params, const MachineRates& rates)
      : params_(params),
        pass_s_(rates.step_s / 3 / static_cast<double>(rates.accumulation)),
        step_s_(rates.step_s) {
    for (const ParamSpec& param : params)
      work_ += work_of(param);
  }

  // Of a step without update: the last backward ends it.
  [[nodiscard]] double gradients_of(const Bucket& bucket) const {
    const int ready = strategies::last_ready(bucket, params_);
    double done = 0;
    for (const ParamSpec& param : params_)
      if (param.ready <= ready) done += work_of(param);
    return step_s_ - 2 * pass_s_ * (1 - part(done));
  }
  [[nodiscard]] double first_use_of(const Bucket& bucket) const {
    const int use = strategies::first_use(bucket, params_);
    double done = 0;
    for (const ParamSpec& param : params_)
      if (param.use < use) done += work_of(param);
    return pass_s_ * part(done);
  }

 private:
  static double work_of(const ParamSpec& param) {
    const bool product = param.role == ParamRole::kMatrix || param.role == ParamRole::kUnembedding;
    return product ? static_cast<double>(param.shape.numel()) : 0;
  }
  [[nodiscard]] double part(double done) const { return work_ > 0 ? done / work_ : 1; }

  Params params_;
  double pass_s_;
  double step_s_;
  double work_ = 0;
};

// A step, as its calls come.
class Timeline {
 public:
  Timeline(const ShardingPlan& plan, Params params, const MachineRates& rates)
      : plan_(plan),
        params_(params),
        rates_(rates),
        model_(params, rates),
        update_(static_cast<std::size_t>(plan.world)) {}

  // Seconds from the start of forward until the next step may start.
  double run() {
    if (plan_.gather == Gather::kPipelined) {
      for (const std::size_t b : plan_.publish_order) {
        publish(plan_.buckets[b]);
        if (publish_collectives(plan_.buckets[b]) > 0)
          stall_ = std::max(stall_, comm_ - model_.first_use_of(plan_.buckets[b]));
      }
    }
    for (const BucketCall& call : bucket_calls(plan_)) {
      const Bucket& bucket = plan_.buckets[call.bucket];
      if (call.phase == CallPhase::kReduce) {
        communicate(stall_ + model_.gradients_of(bucket), reduce_collectives(bucket),
                    &BucketBytes::reduce, bucket);
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
    compute_exchanged();
    // Agreement: all ranks have computed, and backward has ended.
    comm_ = std::max({comm_, busiest(), stall_ + rates_.step_s});
    if (plan_.world > 1) take(rates_.link_latency_s);
    if (plan_.gather == Gather::kSimple)
      for (const std::size_t b : plan_.publish_order)
        publish(plan_.buckets[b]);
    return comm_;
  }
  [[nodiscard]] double communication() const { return communication_; }

 private:
  // A link carries both directions at once.
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
    take(collectives * rates_.link_latency_s +
         static_cast<double>(bytes) / rates_.link_bytes_per_s);
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
  [[nodiscard]] double busiest() const { return *std::ranges::max_element(update_); }

  const ShardingPlan& plan_;
  Params params_;
  const MachineRates& rates_;
  Model model_;
  double comm_ = 0;             // when the stream is free
  std::vector<double> update_;  // by rank
  double stall_ = 0;            // of forward, waiting for weights
  double communication_ = 0;
  const Bucket* exchanged_ = nullptr;  // whose input has travelled, and is not computed yet
  double exchanged_s_ = 0;
  std::vector<double> computed_ = std::vector<double>(plan_.buckets.size());
};

double added(const ShardingPlan& plan, Params params, const MachineRates& rates) {
  return Timeline(plan, params, rates).run() - rates.step_s;
}

}  // namespace

ExposedTime exposed_time(const ShardingPlan& plan, std::span<const ParamSpec> params,
                         const MachineRates& rates) {
  MUO_CHECK(rates.link_bytes_per_s > 0 && rates.gemm_flops_per_s > 0 && rates.link_latency_s >= 0 &&
            rates.step_s >= 0 && rates.accumulation > 0);
  constexpr double kNoTime = std::numeric_limits<double>::infinity();
  Timeline timeline(plan, params, rates);
  ExposedTime out;
  out.update_s = timeline.run() - rates.step_s;
  out.communication_s = timeline.communication();
  const PlanCost cost = plan_cost(plan, params);
  out.newton_schulz_s = *std::ranges::max_element(cost.muon_flops) / rates.gemm_flops_per_s;
  MachineRates other = rates;
  other.link_bytes_per_s = kNoTime;
  other.link_latency_s = 0;
  out.communication_exposed_s = out.update_s - added(plan, params, other);
  other = rates;
  other.gemm_flops_per_s = kNoTime;
  out.newton_schulz_exposed_s = out.update_s - added(plan, params, other);
  return out;
}

}  // namespace muo
