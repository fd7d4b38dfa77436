#include "support/whole_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/check.h"
#include "graphs/capture.h"
#include "runtime/memory/memory_plan.h"

namespace muo::test {
namespace {

struct Inputs {
  explicit Inputs(const trainer::RunConfig& config)
      : shape{config.step.accumulation, config.step.batch, config.model.seq_len},
        inputs(static_cast<std::size_t>(shape.numel())),
        targets(inputs.size()) {}

  void fill(const RankContext& rank, const WholeRun& run, std::int64_t step) {
    std::vector<std::int32_t> row(static_cast<std::size_t>(shape[2]) + 1);
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b) {
        run.fill_row(step, (a * rank.world + rank.rank) * shape[1] + b, row);
        const auto at = (a * shape[1] + b) * shape[2];
        std::copy(row.begin(), row.end() - 1, inputs.begin() + at);
        std::copy(row.begin() + 1, row.end(), targets.begin() + at);
      }
  }
  [[nodiscard]] Tensor view(std::vector<std::int32_t>& values) const {
    return {.data = reinterpret_cast<std::byte*>(values.data()),
            .shape = shape,
            .dtype = DType::kI32,
            .device = -1};
  }

  Shape shape;
  std::vector<std::int32_t> inputs, targets;
};

// Records the tensors of an arena that keep nothing between steps.
class StepMemory final : public Arena {
 public:
  explicit StepMemory(Arena& arena) : arena_(arena) {}
  // Call this before the device is sealed.
  void make_nans(Device& device) {
    std::int64_t most = 0;
    for (const Tensor& tensor : tensors_)
      most = std::max(most, tensor.bytes());
    nans_ = device.allocate_pinned(most, "NaNs");
    std::fill_n(nans_->data(), most, std::byte{0xFF});
  }
  [[nodiscard]] Tensor tensor(const TensorSpec& spec) override {
    const Tensor out = arena_.tensor(spec);
    if (spec.lifespan == Lifespan::kStep) tensors_.push_back(out);
    return out;
  }
  // Every rank calls this; it is a barrier, so that no rank uses the memory of
  // another one meanwhile.
  void fill_with_nans(RankContext& rank) {
    rank.barrier.arrive({}, "before the NaNs");
    for (const Tensor& tensor : tensors_) {
      const auto bytes = [&](std::byte* data, int device) {
        return Tensor{
            .data = data, .shape = {tensor.bytes()}, .dtype = DType::kBytes, .device = device};
      };
      rank.compute.copy(bytes(tensor.data, tensor.device), bytes(nans_->data(), -1));
    }
    rank.compute.synchronize();
    rank.barrier.arrive({}, "after the NaNs");
  }

 private:
  Arena& arena_;
  std::unique_ptr<Buffer> nans_;
  std::vector<Tensor> tensors_;
};

// Copies this rank's masters, in the dtype that the forward pass reads, to their places
// in all parameters.
void take_shards(RankContext& rank, const graphs::RunState& state,
                 const std::vector<ParamSpec>& params, std::vector<float>& weights) {
  std::vector<float> values;
  for (const StateEntry& entry : state.update.state()) {
    std::int64_t at = entry.begin;
    std::int64_t all = 0;
    const ParamSpec* spec = nullptr;
    for (const ParamSpec& param : params) {
      if (param.name == entry.name) {
        spec = &param;
        at += all;
      }
      all += param.shape.numel();
    }
    if (spec == nullptr || !entry.writer) continue;
    weights.resize(static_cast<std::size_t>(all));
    const auto place = weights.begin() + at;
    if (entry.upper) {
      std::vector<BF16> upper(static_cast<std::size_t>(entry.upper.numel()));
      rank.compute.copy({.data = reinterpret_cast<std::byte*>(upper.data()),
                         .shape = entry.upper.shape,
                         .dtype = DType::kBF16},
                        entry.upper);
      rank.compute.synchronize();
      std::ranges::transform(upper, place, [](BF16 value) { return to_f32(value); });
      continue;
    }
    values.resize(static_cast<std::size_t>(entry.values.numel()));
    rank.compute.copy(host_tensor(values.data(), entry.values.shape), entry.values);
    rank.compute.synchronize();
    std::ranges::transform(values, place, [&](float value) {
      return spec->replica == DType::kBF16 ? to_f32(to_bf16(value)) : value;
    });
  }
}

// Requests the interruption of a group in two attempts of each step, at a random point in
// the attempt or soon after it; on a device, which launches all work early, the first
// request is immediate.
class Interruptions {
 public:
  // Called by leaders of barriers.
  void begin(Interruption& group, int attempt, bool on_host) {
    const std::lock_guard lock(mutex_);
    group_ = attempt < kAttempts ? &group : nullptr;
    if (attempt == 0 && !on_host) std::exchange(group_, nullptr)->request();
    begun_ = Clock::now();
    at_ = begun_ + step_ * (++attempts_ * 37 % 101) / 84;
    changed_.notify_all();
  }
  void end(int attempt) {
    const std::lock_guard lock(mutex_);
    group_ = nullptr;
    if (attempt == kAttempts) step_ = Clock::now() - begun_;
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kAttempts = 2;

  void request(const std::stop_token& ends) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, ends, [this] { return group_ != nullptr; })) {
      const std::int64_t attempt = attempts_;
      changed_.wait_until(lock, ends, at_,
                          [&] { return group_ == nullptr || attempts_ != attempt; });
      if (group_ == nullptr || attempts_ != attempt) continue;
      group_->request();
      group_ = nullptr;
    }
  }
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Interruption* group_ = nullptr;
  std::int64_t attempts_ = 0;
  Clock::duration step_{0};
  Clock::time_point begun_, at_;
  std::jthread thread_{[this](const std::stop_token& ends) { request(ends); }};
};

// Calls step() until it is not interrupted; returns the number of interruptions.
template <class Step>
int step_despite(Interruptions* interruptions, RankContext& rank, const Step& step) {
  if (interruptions == nullptr) {
    step();
    return 0;
  }
  for (int times = 0;; ++times) {
    rank.barrier.arrive([&] {
      rank.interruption->open();
      interruptions->begin(*rank.interruption, times, rank.compute.is_host());
    });
    try {
      step();
      rank.barrier.arrive([&] { interruptions->end(times); });
      return times;
    } catch (const Interrupted&) {
      rank.interruption->recover();
    }
  }
}

void take_update(const graphs::RunState& state, std::int64_t step, std::vector<double>& updates) {
  for (const UpdateSquares& squares : state.update_squares(step))
    for (const double square : {squares.change, squares.weight, squares.u})
      updates.push_back(std::sqrt(square));
}

void run_rank(RankContext& rank, const WholeRun& run, const std::vector<ParamSpec>& params,
              const optim::ShardingPlan& plan, Interruptions* interruptions, RunCurves& result,
              std::mutex& mutex) {
  const trainer::RunConfig& config = run.config;
  PlannedArena arena(rank.device, graphs::plan_rank_memory(config, params, plan, rank.rank),
                     rank.common);
  StepMemory step_memory(arena);
  graphs::RunState state(rank, config, params, plan, step_memory);
  if (run.nan_between_steps) step_memory.make_nans(rank.device);
  graphs::warm_up_and_capture(rank, arena, state, config.options.capture.graph);
  rank.device.seal();
  rank.barrier.arrive({}, "start-up");
  const std::int64_t allocations = rank.device.allocations();
  state.initialize({});
  state.initialize_weights(config.options.seed);
  if (run.started) run.started(rank, state);
  const auto copied = rank.device.make_event();
  Inputs inputs(config);
  for (int step = 0; step < run.steps; ++step) {
    if (run.before_step) run.before_step(rank, state, step);
    if (run.nan_between_steps) step_memory.fill_with_nans(rank);
    inputs.fill(rank, run, step);
    const int given_up = step_despite(interruptions, rank, [&] {
      const std::int64_t count = run.micro_steps ? run.micro_steps(step) : config.step.accumulation;
      state.step.run(inputs.view(inputs.inputs).rows(0, count),
                     inputs.view(inputs.targets).rows(0, count), *copied);
      rank.compute.synchronize();
    });
    if (rank.rank == 0) {
      result.given_up += given_up;
      const MetricsRecord record = state.metrics(step);
      result.losses.push_back(record.loss);
      result.grad_norms.push_back(record.grad_norm);
      result.committed.push_back(record.committed);
      if (step > 0) take_update(state, step - 1, result.updates);
    }
  }
  state.finish_update();
  if (rank.rank == 0 && run.steps > 0) take_update(state, run.steps - 1, result.updates);
  state.verify_sync();
  const std::lock_guard lock(mutex);
  result.allocations_while_running += rank.device.allocations() - allocations;
  if (state.update.shards_weights())
    take_shards(rank, state, params, result.weights);
  else if (rank.rank == 0)
    result.weights = replica_values(rank, state);
}

}  // namespace

RunCurves run_whole(const WholeRun& run) {
  const trainer::RunConfig& config = run.config;
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  const optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  RunCurves result;
  std::mutex mutex;
  GroupOptions options = config.group;
  options.world = config.world();
  options.random_order_seed = run.random_order;
  std::optional<Interruptions> interruptions;
  if (run.interrupted) interruptions.emplace();
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    run_rank(rank, run, params, plan, interruptions ? &*interruptions : nullptr, result, mutex);
  });
  return result;
}

std::vector<float> replica_values(RankContext& rank, const graphs::RunState& state) {
  std::vector<float> out;
  std::vector<std::byte> bytes;
  for (const Tensor& weight : state.weights) {
    bytes.resize(static_cast<std::size_t>(weight.bytes()));
    const Tensor copy{.data = bytes.data(), .shape = weight.shape, .dtype = weight.dtype};
    rank.compute.copy(copy, weight);
    rank.compute.synchronize();
    for (std::int64_t i = 0; i < weight.numel(); ++i)
      out.push_back(weight.dtype == DType::kBF16 ? to_f32(copy.as<BF16>()[i])
                                                 : copy.as<float>()[i]);
  }
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return 0.5 * (values[values.size() / 2] + values[(values.size() - 1) / 2]);
}

double curve_distance(const std::vector<double>& a, const std::vector<double>& b) {
  MUO_CHECK(a.size() == b.size() && !a.empty());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace muo::test
