#include "kit/bench/step_times.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/median.h"
#include "base/philox.h"
#include "base/threads.h"
#include "base/zipf.h"
#include "graphs/capture.h"
#include "graphs/run_state.h"
#include "kit/bench/gather_ranks.h"
#include "runtime/comm/collective.h"
#include "runtime/graph_trace.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/timeline.h"

namespace muo {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PowerUse, devices, seconds, joules, clock_mhz, limit_watts)
}  // namespace muo

namespace muo::kit {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OperationTime, name, shape, phase, dtype, calls, seconds, waited,
                                   flops, bytes)

namespace {

// One rank's state and the batch of random tokens that every step uses.
class Steps {
 public:
  Steps(RankContext& rank, const trainer::RunConfig& config, const std::vector<ParamSpec>& params,
        const optim::ShardingPlan& plan)
      : rank_(rank),
        shape_{config.step.accumulation, config.step.batch, config.model.seq_len},
        arena_(rank.device, graphs::plan_rank_memory(config, params, plan, rank.rank), rank.common),
        state_(rank, config, params, plan, arena_),
        pinned_(rank.device.allocate_pinned((shape_.numel() + 1) * size_of(DType::kI32), "tokens")),
        tokens_(reinterpret_cast<std::int32_t*>(pinned_->data())),
        copied_(rank.device.make_event()) {
    graphs::warm_up_and_capture(rank, arena_, state_, config.options.capture.graph);
    rank.device.seal();
    rank.barrier.arrive({}, "start-up");
    state_.initialize({});
    state_.initialize_weights(config.options.seed);
    const std::int64_t count = shape_.numel() + 1;
    const CounterRandom random(config.options.seed, "bench");
    for (std::int64_t i = 0; i < count; ++i)
      tokens_[i] = zipf_token(random.uniform(static_cast<std::uint64_t>(rank.rank * count + i)),
                              config.model.vocab_size);
  }

  void enqueue() {
    state_.step.run(host_tensor(tokens_, shape_), host_tensor(tokens_ + 1, shape_), *copied_);
  }

  // Returns the seconds that the host takes to enqueue one step on an idle device.
  double launch() {
    rank_.barrier.arrive({}, "before a step");
    const double start = steady_seconds();
    enqueue();
    const double launched = steady_seconds() - start;
    rank_.wait(rank_.compute);
    return launched;
  }

  // Runs `count` steps and returns the times of their start and end. `meter`: restarted with the
  // steps; null on all ranks but one.
  std::pair<double, double> run(std::int64_t count, PowerMeter* meter) {
    if (state_.step.clock()) {
      rank_.compute.zero(state_.step.clock());
      if (rank_.compute.is_host())
        for (Graph* graph : state_.step.graphs())
          graph->observe(&node_times_.emplace_back(graph->trace()));
    }
    rank_.wait(rank_.compute);
    rank_.barrier.arrive({}, "before the steps");
    if (meter != nullptr) meter->take();
    const double start = steady_seconds();
    for (std::int64_t i = 0; i < count; ++i) {
      enqueue();
      rank_.wait(*copied_);
      if (meter != nullptr) meter->sample();
    }
    rank_.wait(rank_.compute);
    return {start, steady_seconds()};
  }

  [[nodiscard]] std::vector<OperationTime> operations() const {
    std::vector<OperationTime> rows;
    const std::vector<const GraphTrace*> traces = state_.step.traces();
    for (std::size_t i = 0; i < node_times_.size(); ++i)
      add_operations(rows, *traces[i], node_times_[i].of());
    return rows;
  }

  void record(Timeline& timeline) {
    constexpr const char* kSite = "the timeline";
    {
      StepRecorder recorder(rank_.rank, state_.step.graphs());
      rank_.barrier.arrive({}, kSite);
      recorder.begin_step(0, false);
      enqueue();
      rank_.wait(rank_.compute);
      rank_.barrier.arrive({}, kSite);
      timeline.add(recorder.take(false));
    }
    rank_.barrier.arrive([&] { timeline.write(); }, kSite);
  }

  [[nodiscard]] PhaseClock clock() {
    PhaseClock out;
    if (!state_.step.clock()) return out;
    rank_.compute.copy(host_struct(out), state_.step.clock());
    rank_.wait(rank_.compute);
    return out;
  }

 private:
  RankContext& rank_;
  Shape shape_;
  PlannedArena arena_;
  graphs::RunState state_;
  std::unique_ptr<Buffer> pinned_;
  std::int32_t* tokens_;
  std::unique_ptr<Event> copied_;
  std::deque<NodeSums> node_times_;  // by graph, if they are observed
};

void add(std::vector<OperationTime>& rows, const OperationTime& more) {
  for (OperationTime& row : rows)
    if (row.add(more)) return;
  rows.push_back(more);
}

}  // namespace

StepTimes measure_steps(const trainer::RunConfig& config, std::int64_t steps) {
  constexpr std::int64_t kMaxLaunches = 20;
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  const optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  StepTimes times;
  times.launch.resize(static_cast<std::size_t>(config.world()));
  times.clocks.resize(times.launch.size());
  std::vector<std::vector<OperationTime>> operations(times.launch.size());
  const RankRange here = config.group.local();
  std::vector<double> began(static_cast<std::size_t>(here.count)), done(began.size());
  std::vector<PowerUse> power(times.launch.size());  // of a process's devices, at its first rank
  std::optional<Timeline> timeline;
  if (const std::string& file = config.options.run.timeline; config.step.timed && !file.empty())
    timeline.emplace(file, config.group);
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    Steps measured(rank, config, params, plan);
    measured.launch();  // warms up caches, pages and clocks, and loads the modules of an eager step
    std::vector<double> launches = {0};
    if (!rank.compute.is_host()) {
      launches.clear();
      for (std::int64_t i = 0; i < std::min(steps, kMaxLaunches); ++i)
        launches.push_back(measured.launch());
    }
    const auto i = static_cast<std::size_t>(rank.rank);
    const auto local = static_cast<std::size_t>(rank.rank - here.first);
    std::optional<PowerMeter> meter;
    if (local == 0) meter.emplace(config.group);
    std::tie(began[local], done[local]) = measured.run(steps, meter ? &*meter : nullptr);
    if (meter) power[i] = meter->take().value_or(PowerUse{});
    times.launch[i] = median(std::move(launches));
    times.clocks[i] = measured.clock();
    operations[i] = measured.operations();
    if (timeline) measured.record(*timeline);
  });
  if (timeline) times.timeline = timeline->note();
  // Ranks leave the barrier at different times, so the earliest start counts, but only within a
  // process, because the clocks of hosts differ.
  std::vector<double> lasted(times.launch.size(), std::ranges::max(done) - std::ranges::min(began));
  ProcessGroup* const processes = config.group.processes;
  gather_ranks(processes, "durations of steps", lasted);
  gather_ranks(processes, "durations of launches", times.launch);
  gather_ranks(processes, "step clocks", times.clocks);
  gather_ranks(processes, "times of operations", operations);
  gather_ranks(processes, "energy of steps", power);
  times.step = std::ranges::max(lasted) / static_cast<double>(steps);
  for (const std::vector<OperationTime>& rows : operations)
    add_operations(times.operations, rows);
  PowerUse all;
  for (const PowerUse& use : power)
    all.add(use);
  if (all.devices * config.group.ranks_per_device == config.world()) times.power = all;
  return times;
}

bool OperationTime::is_collective() const { return value_of<CollectiveKind>(name).has_value(); }

bool OperationTime::is_product() const {
  return name.starts_with("gemm") || name == "symmetric_product";
}

bool OperationTime::add(const OperationTime& more) {
  if (name != more.name || shape != more.shape || phase != more.phase || dtype != more.dtype)
    return false;
  calls += more.calls;
  seconds += more.seconds;
  waited += more.waited;
  flops += more.flops;
  bytes += more.bytes;
  return true;
}

OperationTime operation_of(const GraphTrace& trace, const GraphTrace::Node& node) {
  NodeWork work = work_of(node);
  return {.name = std::move(work.name),
          .shape = std::move(work.shape),
          .phase = std::string(phase_of(trace, node)),
          .dtype = work.dtype,
          .flops = work.flops,
          .bytes = work.bytes};
}

void add_operations(std::vector<OperationTime>& rows, const GraphTrace& trace,
                    std::span<const NodeSums::Sum> times) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    OperationTime row = operation_of(trace, trace.nodes[i]);
    const auto calls = static_cast<double>(times[i].calls);
    row.calls = times[i].calls;
    row.seconds = times[i].thread;
    row.waited = times[i].wall - times[i].thread;
    row.flops *= calls;
    row.bytes *= calls;
    add(rows, row);
  }
}

void add_operations(std::vector<OperationTime>& rows, std::span<const OperationTime> more) {
  for (const OperationTime& row : more)
    add(rows, row);
}

}  // namespace muo::kit
