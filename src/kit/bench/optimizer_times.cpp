#include "kit/bench/optimizer_times.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/median.h"
#include "base/text_table.h"
#include "base/threads.h"
#include "graphs/capture.h"
#include "kernels/draw.h"
#include "kernels/fingerprint.h"
#include "kit/bench/gather_ranks.h"
#include "optim/sharded_step.h"
#include "optim/sharding_plan.h"
#include "optim/strategies/strategies.h"
#include "optim/update_clock.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/memory/pinned_tensor.h"
#include "trainer/run/backend.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;
using Params = std::span<const ParamSpec>;

std::int64_t largest(Params params) {
  std::int64_t elements = 0;
  for (const ParamSpec& param : params)
    elements = std::max(elements, param.shape.numel());
  return elements;
}

// Returns the indices of the parameters in the order in which backward completes their gradients.
std::vector<std::size_t> backward_order(Params params) {
  std::vector<std::size_t> all(params.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return optim::strategies::backward_order(params, std::move(all));
}

// The updates of one rank, with copies of random gradients in place of a backward pass.
class Updates {
 public:
  Updates(RankContext& rank, const optim::ShardingPlan& plan, Params params, Arena& arena)
      : update(rank, plan, params, arena),
        rank_(rank),
        params_(params),
        order_(backward_order(params)) {
    const auto tensor = [&](const char* name, std::size_t n, DType dtype, MemoryCategory category) {
      return arena.tensor({.name = name,
                           .shape = {static_cast<std::int64_t>(n)},
                           .dtype = dtype,
                           .category = category,
                           .lifespan = Lifespan::kRun});
    };
    const auto clock = [&](const char* name) {
      return tensor(name, sizeof(PhaseClock), DType::kBytes, MemoryCategory::kMetrics);
    };
    gradients = tensor("random gradients", static_cast<std::size_t>(largest(params)), DType::kF32,
                       MemoryCategory::kInput);
    for (const StateEntry& entry : update.state())
      if (std::ranges::find(params, entry.name, &ParamSpec::name) != params.end())
        masters.push_back(entry);
    const std::size_t most = std::max(masters.size(), params.size());
    fingerprints_ = tensor("fingerprints", most, DType::kI64, MemoryCategory::kMetrics);
    copied_.emplace(rank.device, fingerprints_.shape, DType::kI64, "fingerprints");
    clock_ = {.update = clock("update clock"), .comm = clock("comm clock")};
    update.observe(clock_);
  }

  void warm_up() {
    enqueue();
    rank_.wait(rank_.compute);
  }
  void capture() {
    graph_ = rank_.compute.capture([&] { enqueue(); });
  }
  [[nodiscard]] std::vector<const GraphTrace*> traces() const { return {&graph_->trace()}; }

  void step() {
    if (graph_ != nullptr)
      rank_.compute.launch(*graph_);
    else
      enqueue();
    rank_.wait(rank_.compute);
  }

  void restart_clocks() {
    rank_.compute.zero(clock_.update);
    rank_.compute.zero(clock_.comm);
    rank_.wait(rank_.compute);
  }
  [[nodiscard]] PhaseClock update_clock() const { return read<PhaseClock>(clock_.update); }
  [[nodiscard]] PhaseClock comm_clock() const { return read<PhaseClock>(clock_.comm); }
  [[nodiscard]] std::int64_t committed() const {
    return read<StepScalars>(update.scalars()).updates;
  }

  [[nodiscard]] trainer::UpdateSizes last_update() {
    update.sum_last_update();
    std::vector<UpdateSquares> squares(params_.size());
    const Tensor from = update.update_squares();
    rank_.compute.copy({.data = reinterpret_cast<std::byte*>(squares.data()),
                        .shape = from.shape,
                        .dtype = from.dtype},
                       from);
    rank_.wait(rank_.compute);
    return trainer::update_sizes(committed() - 1, params_, squares, /*each_matrix=*/false);
  }

  std::vector<std::int64_t> fingerprints_of(std::size_t count, auto&& tensor_of) const {
    const auto n = static_cast<std::int64_t>(count);
    for (std::int64_t i = 0; i < n; ++i)
      fingerprint(rank_.compute, {.out = fingerprints_.elements(i, 1),
                                  .x = tensor_of(static_cast<std::size_t>(i))});
    // A copy into memory that is not pinned may block until the GPU is idle, while the GPU waits
    // for peers that have not launched their part of a collective: a deadlock.
    const Tensor out = copied_->tensor().elements(0, n);
    rank_.compute.copy(out, fingerprints_.elements(0, n));
    rank_.wait(rank_.compute);
    return {out.as<std::int64_t>(), out.as<std::int64_t>() + n};
  }

  optim::ShardedStep update;
  Tensor gradients;                 // as many elements as the largest parameter
  std::vector<StateEntry> masters;  // this rank's shards of the master weights

 private:
  void enqueue() {
    Stream& compute = rank_.compute;
    clock_.mark_phase(compute, optim::UpdatePhase::kElsewhere);
    optim::ShardedStep::OpenStep step = update.begin();
    optim::ShardedStep::MicroStep micro_step = step.micro_step(0);
    for (std::size_t i = 0; i < params_.size(); ++i)
      micro_step.weight_needed(i);
    clock_.mark_phase(compute, optim::UpdatePhase::kCommunication);
    for (std::size_t i = 0; i < params_.size(); ++i) {
      const Shape& shape = params_[i].shape;
      compute.copy(update.gradient(i), gradients.elements(0, shape.numel()).view(shape));
    }
    compute.zero(update.totals());  // there is no loss
    clock_.mark_phase(compute, optim::UpdatePhase::kElsewhere);
    for (const std::size_t i : order_)
      micro_step.gradient_ready(i);
    step.finish();
    clock_.mark_phase(compute, optim::UpdatePhase::kCommunication);
  }

  template <class T>
  [[nodiscard]] T read(Tensor tensor) const {
    T out;
    rank_.compute.copy(host_struct(out), tensor);
    rank_.wait(rank_.compute);
    return out;
  }

  RankContext& rank_;
  Params params_;
  std::vector<std::size_t> order_;
  Tensor fingerprints_;
  std::optional<PinnedTensor> copied_;
  optim::UpdateClock clock_;
  std::unique_ptr<Graph> graph_;
};

constexpr std::array kPhases = {optim::UpdatePhase::kElementwise, optim::UpdatePhase::kGemm,
                                optim::UpdatePhase::kCommunication};

// The duration of the phases of an update, in nanoseconds.
std::int64_t update_ns(const PhaseClock& clock) {
  std::int64_t ns = 0;
  for (const optim::UpdatePhase phase : kPhases)
    ns += clock.elapsed[static_cast<std::size_t>(phase)];
  return ns;
}

void initialize(const RankContext& rank, const trainer::RunConfig& config, Updates& updates) {
  rank.compute.copy(updates.update.hyper(), host_struct(config.hyper));
  draw_gradients(rank.compute, config.options.seed, rank.rank, updates.gradients);
  rank.wait(rank.compute);
}

// FLOPs of Newton-Schulz with each matrix counted once: redundant work and padding do not count.
double useful_flops(const trainer::RunConfig& config) {
  double flops = 0;
  for (const ParamSpec& param : model::gpt_parameters(config.model))
    if (optim::update_group(param.role).rule == optim::UpdateRule::kMuon)
      flops += optim::newton_schulz_flops(
          param.shape, optim::newton_schulz_form(config.options.optimizer.newton_schulz),
          config.options.optimizer.ns_steps);
  return flops;
}

using ByPhase = std::array<double, kPhases.size()>;

struct Figures {
  double ms = 0;                // median over steps
  double flops_per_device = 0;  // FLOP/s
  ByPhase phase_ms{};           // mean over ranks and steps
  double communication_ms = 0;  // time in which comm is busy; mean over ranks and steps
  ByPhase thread_ms{};          // CPU time; mean over ranks and steps
};

double sum(const ByPhase& ms) { return ms[0] + ms[1] + ms[2]; }

ByPhase shares(ByPhase ms) {
  const double whole = sum(ms);
  for (double& phase : ms)
    phase = whole > 0 ? phase / whole : 0;
  return ms;
}

Figures figures_of(const trainer::RunConfig& config, const OptimizerTimes& times) {
  const auto ranks = static_cast<double>(times.update.size());
  const double per_step = 1e-6 / static_cast<double>(times.seconds.size()) / ranks;
  Figures out;
  const double seconds = median(times.seconds);
  out.ms = 1e3 * seconds;
  out.flops_per_device = useful_flops(config) / seconds / ranks;
  for (std::size_t rank = 0; rank < times.update.size(); ++rank) {
    for (std::size_t i = 0; i < kPhases.size(); ++i) {
      const auto phase = static_cast<std::size_t>(kPhases[i]);
      out.phase_ms[i] += per_step * static_cast<double>(times.update[rank].elapsed[phase]);
      out.thread_ms[i] += per_step * static_cast<double>(times.update[rank].thread[phase]);
    }
    const auto busy = static_cast<std::size_t>(optim::CommPhase::kBusy);
    out.communication_ms += per_step * static_cast<double>(times.comm[rank].elapsed[busy]);
  }
  return out;
}

trainer::UpdateSize size_of_matrices(const trainer::UpdateSizes& sizes) {
  return std::ranges::find(sizes.groups, optim::group_name(ParamRole::kMatrix),
                           &trainer::UpdateSizes::Group::name)
      ->size;
}

}  // namespace

void draw_gradients(Stream& stream, std::uint64_t seed, int rank, const Tensor& gradients) {
  draw(stream, {.y = gradients,
                .random = {seed, "gradients of rank " + std::to_string(rank)},
                .init = {InitialValues::Kind::kNormal, 1.0}});
}

OptimizerTimes measure_optimizer(const trainer::RunConfig& config, std::int64_t steps) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  plan.micro_steps = 1;
  optim::assign_tags(plan);
  const auto memory_of = [&](int rank) {
    return graphs::traced_plan(rank, config.world(), [&](RankContext& context, Arena& arena) {
      return std::make_unique<Updates>(context, plan, params, arena);
    });
  };
  trainer::require_memory(config, memory_of(0), trainer::memory_budget(config).per_rank());
  const auto world = static_cast<std::size_t>(config.world());
  OptimizerTimes times;
  times.seconds.resize(static_cast<std::size_t>(steps));
  times.update.resize(world);
  times.comm.resize(world);
  std::vector<std::vector<double>> seconds(world);  // by rank and step
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    const auto mine = static_cast<std::size_t>(rank.rank);
    PlannedArena arena(rank.device, memory_of(rank.rank), rank.common);
    Updates updates(rank, plan, params, arena);
    graphs::warm_up_and_capture(rank, arena, updates, config.options.capture.graph);
    rank.device.seal();
    rank.barrier.arrive({}, "start-up");
    initialize(rank, config, updates);
    const auto masters = [&] {
      return updates.fingerprints_of(updates.masters.size(), [&](std::size_t i) {
        Tensor values = updates.masters[i].values;
        if (values.dtype == DType::kU16)
          values.dtype = DType::kBF16;  // only the size matters, not the values
        return values;
      });
    };
    const std::vector<std::int64_t> before = masters();
    updates.step();  // warms up caches, pages and clocks, and loads the modules of an eager step
    updates.restart_clocks();
    for (std::int64_t step = 0; step < steps; ++step) {
      rank.barrier.arrive({}, "before an update");
      const std::int64_t start = update_ns(updates.update_clock());
      updates.step();
      const std::int64_t ns = update_ns(updates.update_clock()) - start;
      seconds[mine].push_back(1e-9 * static_cast<double>(ns));
    }
    times.update[mine] = updates.update_clock();
    times.comm[mine] = updates.comm_clock();
    MUO_CHECK(updates.committed() == steps + 1, "bench: ", updates.committed(), " of ", steps + 1,
              " updates were committed");
    const std::vector<std::int64_t> after = masters();
    for (std::size_t i = 0; i < after.size(); ++i)
      MUO_CHECK(before[i] != after[i], "bench: updates did not change ", updates.masters[i].name);
    updates.update.publish();
    const std::vector<std::int64_t> weights = updates.fingerprints_of(
        params.size(), [&](std::size_t i) { return updates.update.weight(i); });
    const trainer::UpdateSizes sizes = updates.last_update();
    if (rank.rank != 0) return;
    times.weights = weights;
    times.sizes = sizes;
  });
  ProcessGroup* const processes = config.group.processes;
  gather_ranks(processes, "durations of updates", seconds);
  gather_ranks(processes, "update clocks", times.update);
  gather_ranks(processes, "communication clocks", times.comm);
  for (const std::vector<double>& of_rank : seconds)
    for (std::size_t step = 0; step < of_rank.size(); ++step)
      times.seconds[step] = std::max(times.seconds[step], of_rank[step]);
  return times;
}

std::string optimizer_table(const trainer::RunConfig& config, std::span<const OptimizerRow> rows) {
  const bool host = config.group.plugin == nullptr;
  std::vector<std::string> head = {"strategy", "ms",      host ? "GFLOP/s" : "TFLOP/s",
                                   "comm ms",  "exposed", "update",
                                   "GEMM",     "comm",    "change"};
  if (host) head.insert(head.end(), {"CPU ms", "update*", "GEMM*", "comm*"});
  Table table(std::move(head));
  for (const OptimizerRow& row : rows) {
    const Figures f = figures_of(config, row.times);
    std::vector<std::string> cells = {
        row.strategy, fmt::format("{:.3f}", f.ms),
        fmt::format("{:.1f}", f.flops_per_device / (host ? 1e9 : 1e12)),
        fmt::format("{:.3f}", f.communication_ms), fmt::format("{:.3f}", f.phase_ms.back())};
    std::ranges::transform(shares(f.phase_ms), std::back_inserter(cells), percent_text);
    cells.push_back(fmt::format("{:.2e}", size_of_matrices(row.times.sizes).rms));
    if (host) {
      cells.push_back(fmt::format("{:.3f}", sum(f.thread_ms)));
      std::ranges::transform(shares(f.thread_ms), std::back_inserter(cells), percent_text);
    }
    table.add(std::move(cells));
  }
  std::string out =
      table.text() +
      "  ms: median time of an update on the slowest device. FLOP/s per device: Newton-Schulz of\n"
      "  all matrices once, divided by that time and the number of devices. comm: time of\n"
      "  communication; exposed: time the update waits for it; means over devices. Then\n"
      "  shares of the time. change: RMS of the last update of the matrices.\n";
  if (host)
    out +=
        "  CPU: mean CPU time per device, and shares of it (*), which other programs do not "
        "affect.\n";
  if (host && config.world() > usable_cores())
    out += fmt::format(
        "  {} devices share {} cores: the other times include waiting for a core, and exposed\n"
        "  includes waiting for devices that have one.\n",
        config.world(), usable_cores());
  return out;
}

Json optimizer_json(const trainer::RunConfig& config, std::span<const OptimizerRow> rows) {
  const auto by_phase = [](const ByPhase& values) {
    Json out;
    for (std::size_t i = 0; i < kPhases.size(); ++i)
      out[std::string(optim::kUpdatePhases.at(static_cast<std::size_t>(kPhases[i])))] = values[i];
    return out;
  };
  Json strategies = Json::array();
  for (const OptimizerRow& row : rows) {
    const Figures f = figures_of(config, row.times);
    Json steps = Json::array();
    for (const double seconds : row.times.seconds)
      steps.push_back(1e3 * seconds);
    Json exposed = Json::array();
    for (const PhaseClock& clock : row.times.update)
      exposed.push_back(
          1e-6 / static_cast<double>(row.times.seconds.size()) *
          static_cast<double>(
              clock.elapsed[static_cast<std::size_t>(optim::UpdatePhase::kCommunication)]));
    Json out = {{"strategy", row.strategy},
                {"update_ms", f.ms},
                {"gflops_per_device", 1e-9 * f.flops_per_device},
                {"communication_ms", f.communication_ms},
                {"exposed_communication_ms", f.phase_ms.back()},
                {"exposed_communication_ms_by_rank", exposed},
                {"phases_ms", by_phase(f.phase_ms)},
                {"shares", by_phase(shares(f.phase_ms))},
                {"steps_ms", steps}};
    for (const auto& [group, is_scalars, size] : row.times.sizes.groups)
      out["update_rms"][std::string(group)] = size.rms;
    if (config.group.plugin == nullptr) out["processor_ms"] = by_phase(f.thread_ms);
    strategies.push_back(std::move(out));
  }
  Json out = {{"newton_schulz_gflop", 1e-9 * useful_flops(config)}};
  if (config.group.plugin == nullptr) out["cores"] = usable_cores();
  out["strategies"] = std::move(strategies);
  return out;
}

}  // namespace muo::kit
