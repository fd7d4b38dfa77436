#include "support/toy_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "base/split_float.h"
#include "kernels/metrics.h"
#include "optim/nonfinite_value.h"
#include "optim/optimizer_options.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/check_memory_plan.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/tracing_rank.h"

namespace muo::test {
namespace {

// The step of one rank, used both for tracing and for running.
class ToyRankStep {
 public:
  ToyRankStep(const ToyRun& run, const RankContext& rank, Arena& arena)
      : run_(run), rank_(rank), step_(rank, run.plan, run.params, arena, run.gradients) {}

  optim::ShardedStep& sharded() { return step_; }
  [[nodiscard]] const std::vector<std::uint64_t>& seen() const { return seen_; }

  void enqueue() {
    optim::ShardedStep::OpenStep open = step_.begin();
    optim::ShardedStep::MicroStep micro_step = open.micro_step(run_.plan.micro_steps - 1);
    for (std::size_t i = 0; i < run_.params.size(); ++i)
      read_weight(micro_step, i);
    std::vector<std::size_t> order(run_.params.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[static_cast<std::size_t>(run_.params[i].ready)] = i;
    for (const std::size_t i : order) {
      write_gradient(i);
      micro_step.gradient_ready(i);
    }
    const Tensor totals = step_.totals();
    const std::vector<Access> accesses = {{totals.data, 8, true}};
    rank_.compute.enqueue_host("loss", accesses, [totals] { totals.as<double>()[0] = 1.0 / 64; });
    open.finish();
  }

 private:
  void read_weight(optim::ShardedStep::MicroStep& micro_step, std::size_t param) {
    if (!run_.reads_too_early) micro_step.weight_needed(param);
    const Tensor weight = step_.weight(param);
    const std::vector<Access> accesses = {{weight.data, weight.bytes(), false}};
    rank_.compute.enqueue_host("forward", accesses, [this, weight] {
      std::uint64_t sum = 0;
      for (std::int64_t i = 0; i < weight.bytes(); ++i)
        sum = sum * 31 + static_cast<std::uint64_t>(weight.data[i]);
      seen_.push_back(sum);
    });
    if (run_.reads_too_early) micro_step.weight_needed(param);
  }

  void write_gradient(std::size_t param) {
    const Tensor gradient = step_.gradient(param);
    const Tensor scalars = step_.scalars();
    const std::vector<Access> accesses = {{gradient.data, gradient.bytes(), true},
                                          {scalars.data, scalars.bytes(), false}};
    const ToyRun* run = &run_;
    const int rank = rank_.rank;
    rank_.compute.enqueue_host("backward", accesses, [=] {
      const bool narrow = gradient.dtype == DType::kBF16;
      std::vector<float> values(narrow ? static_cast<std::size_t>(gradient.numel()) : 0);
      const std::span<float> out(narrow ? values.data() : gradient.as<float>(),
                                 static_cast<std::size_t>(gradient.numel()));
      const std::int64_t step = scalars.as_struct<StepScalars>()->step;
      toy_gradient(out, run->params[param].name, step, rank, run->world);
      if (rank == 0 && run->perturb) {
        const CounterRandom random(*run->perturb, run->params[param].name);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const std::uint64_t bits = random.bits((static_cast<std::uint64_t>(step) << 32) + i);
          const float limit = std::numeric_limits<float>::infinity();
          out[i] = std::nextafter(out[i], (bits & 1) != 0 ? limit : -limit);
        }
      }
      if (run->round_gradients)
        for (float& v : out)
          v = to_f32(to_bf16(v));
      if (rank == run->bad_rank && param == run->bad_param && step == run->bad_step)
        out[out.size() / 2] = std::numeric_limits<float>::infinity();
      if (narrow) std::ranges::transform(values, gradient.as<BF16>(), to_bf16);
    });
  }

  const ToyRun& run_;
  RankContext rank_;
  optim::ShardedStep step_;
  std::vector<std::uint64_t> seen_;
};

std::vector<float> values_of(const Tensor& tensor) {  // from fp32 or bf16
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = tensor.dtype == DType::kBF16 ? to_f32(tensor.as<BF16>()[i]) : tensor.as<float>()[i];
  return values;
}

std::vector<float> values_of(const StateEntry& entry) {
  if (!entry.upper) return values_of(entry.values);
  std::vector<float> values(static_cast<std::size_t>(entry.values.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = join_float(entry.upper.as<BF16>()[i], entry.values.as<std::uint16_t>()[i]);
  return values;
}

void set_values(const StateEntry& entry, std::span<const float> values) {  // of a master
  if (!entry.upper) {
    std::ranges::copy(values, entry.values.as<float>());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const SplitFloat parts = split_float(values[i]);
    entry.upper.as<BF16>()[i] = parts.upper;
    entry.values.as<std::uint16_t>()[i] = parts.lower;
  }
}

// Fills the tensor with bits that are NaN in both fp32 and bf16.
void spoil(const Tensor& tensor) { std::fill_n(tensor.data, tensor.bytes(), std::byte{0xFF}); }

ToyRank result_of(const ToyRun& run, const optim::ShardedStep& step) {
  ToyRank result;
  for (std::size_t i = 0; i < run.params.size(); ++i)
    result.weights.push_back(values_of(step.weight(i)));
  for (const StateEntry& entry : step.state())
    result.state.push_back(
        {entry.name, entry.shape, entry.begin, values_of(entry), entry.values.dtype, entry.writer});
  result.scalars = *step.scalars().as_struct<StepScalars>();
  const auto* totals = step.totals().as<double>();
  result.squares = totals[kSquaresTotal];
  MetricsRecord record;
  fill_record(result.scalars, totals, step.totals().numel(), record);
  if (record.bad_rank >= 0)
    result.bad_number = optim::describe_value(
        optim::locate_value(run.plan, record.bad_rank, record.bad_index), run.params);
  return result;
}

MemoryPlan plan_rank(const ToyRun& run, int rank) {
  TracingRank tracing(rank, run.world);
  TraceArena arena(rank);
  ToyRankStep step(run, tracing.context(), arena);
  const std::unique_ptr<Graph> graph = tracing.context().compute.capture([&] { step.enqueue(); });
  const std::vector<const GraphTrace*> graphs = {&graph->trace()};
  MemoryPlan plan = plan_memory(arena, graphs);
  check_memory_plan(plan, arena, graphs);
  return plan;
}

ToyRank run_rank(const ToyRun& run, RankContext& rank) {
  PlannedArena arena(rank.device, plan_rank(run, rank.rank), rank.common);
  ToyRankStep step(run, rank, arena);
  optim::ShardedStep& sharded = step.sharded();
  for (int turn = 0; turn < rank.world; ++turn) {  // sequentially, because replicas may be common
    for (std::size_t i = 0; turn == rank.rank && i < run.params.size(); ++i)
      spoil(sharded.weight(i));
    rank.barrier.arrive({}, "spoiling");
  }
  for (const StateEntry& entry : sharded.state())
    for (const ParamSpec& param : run.params) {
      if (param.name != entry.name) continue;
      const std::vector<float> initial = toy_weights(param);
      set_values(entry, std::span(initial).subspan(static_cast<std::size_t>(entry.begin),
                                                   static_cast<std::size_t>(entry.values.numel())));
    }
  for (const StateEntry& entry : sharded.state())
    if (!run.bad_momentum.empty() && entry.name == run.bad_momentum + ".momentum")
      entry.values.as<float>()[0] = std::numeric_limits<float>::infinity();
  sharded.publish();
  *sharded.hyper().as_struct<HyperParameters>() = run.hyper ? run.hyper() : toy_hyper();
  rank.compute.synchronize();
  const std::int64_t sent_before = rank.communicator.bytes_sent();
  std::unique_ptr<Graph> graph;
  if (run.graph) graph = rank.compute.capture([&] { step.enqueue(); });
  std::vector<std::int64_t> counts;
  std::vector<std::vector<UpdateSquares>> updates;
  const auto take_update = [&] {
    const auto* squares =
        reinterpret_cast<const UpdateSquares*>(sharded.update_squares().as<double>());
    updates.emplace_back(squares, squares + run.params.size());
  };
  for (int s = 0; s < run.steps; ++s) {
    if (graph)
      rank.compute.launch(*graph);
    else
      step.enqueue();
    rank.compute.synchronize();
    const auto* scalars = sharded.scalars().as_struct<StepScalars>();
    counts.push_back(scalars->step);
    counts.push_back(scalars->updates);
    if (s > 0) take_update();
  }
  const std::int64_t sent_bytes = rank.communicator.bytes_sent() - sent_before;
  if (sharded.leaves_replicas_behind() && run.steps > 0) {
    sharded.publish();
    rank.compute.synchronize();
  }
  sharded.sum_last_update();
  rank.compute.synchronize();
  take_update();
  ToyRank result = result_of(run, sharded);
  result.updates = updates;
  result.counts = counts;
  result.seen = step.seen();
  result.sent_bytes = sent_bytes;
  return result;
}

}  // namespace

std::vector<ParamSpec> toy_params(int layers, DType replica) {
  std::vector<ParamSpec> params;
  int l = kNoLayer;
  const auto add = [&](const std::string& name, const Shape& shape, ParamRole role) {
    const bool scalar = optim::number_class(role) == optim::NumberClass::kScalar;
    params.push_back({.name = name,
                      .shape = shape,
                      .role = role,
                      .layer = l,
                      .replica = scalar ? DType::kF32 : replica});
  };
  add("transformer.wte.weight", {37, 32}, ParamRole::kEmbedding);
  add("resid_lambdas", {layers}, ParamRole::kResidLambda);
  add("x0_lambdas", {layers}, ParamRole::kX0Lambda);
  add("smear_gate.weight", {1, 24}, ParamRole::kSmear);
  for (l = 0; l < layers; ++l) {
    const std::string layer = "transformer.h." + std::to_string(l) + ".";
    add(layer + "attn.c_q.weight", {24, 24}, ParamRole::kMatrix);
    add(layer + "attn.c_proj.weight", {24, 24}, ParamRole::kMatrix);
    add(layer + "attn.ve_gate.weight", {6, 12}, ParamRole::kMatrix);
    add(layer + "mlp.c_fc.weight", {40, 24}, ParamRole::kMatrix);
    add(layer + "mlp.c_proj.weight", {24, 40}, ParamRole::kMatrix);
  }
  l = kNoLayer;
  add("lm_head.weight", {41, 32}, ParamRole::kUnembedding);
  params.back().used_rows = 39;
  const int count = static_cast<int>(params.size());
  for (int i = 0; i < count; ++i) {
    params[static_cast<std::size_t>(i)].use = i;
    params[static_cast<std::size_t>(i)].ready = count - 1 - i;
  }
  return params;
}

HyperParameters toy_hyper(const optim::OptimizerVersion* version) {
  optim::OptimizerOptions options;
  options.warmup_steps = 4;
  options.width_lr_scale = std::sqrt(768.0 / 24);
  options.matrix_lr = 0.02;
  options.embedding_lr = 0.05;
  options.version = version->name;
  return optim::make_hyper_parameters(options, {.outlier_deviations = 0}, 100);
}

std::vector<float> toy_weights(const ParamSpec& param) {
  const CounterRandom random(5, param.name);
  std::vector<float> values(static_cast<std::size_t>(param.shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.1F * random.normal(i);
  return values;
}

void toy_gradient(std::span<float> out, const std::string& name, std::int64_t step, int first,
                  int stride) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("zero") || (has("late") && step == 0)) {
    std::fill(out.begin(), out.end(), 0.0F);
    return;
  }
  // Two patterns, mixed differently in every row, so that no rank's gradient is a multiple of
  // another's.
  const CounterRandom random(9, name);
  float even = 0;
  float odd = 0;
  for (int row = first; row < kToyRows; row += stride)
    (row % 7 < 3 ? even : odd) += static_cast<float>(1 + row % 5) / 64.0F;
  const std::uint64_t base = static_cast<std::uint64_t>(step) << 32;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t bits = random.bits(base + i);
    const auto a = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F;
    const auto b = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31F;
    out[i] = 0.01F * (even * a + odd * b);
  }
}

std::vector<ToyRank> run_toy(const ToyRun& run) {
  std::vector<ToyRank> results(static_cast<std::size_t>(run.world));
  DeviceGroup group({.world = run.world, .random_order_seed = run.random_order_seed});
  group.run([&](RankContext& rank) {
    results[static_cast<std::size_t>(rank.rank)] = run_rank(run, rank);
  });
  return results;
}

std::vector<std::uint32_t> bits_of(const ToyRank& rank) {
  std::vector<std::uint32_t> bits;
  const auto add = [&](const std::vector<float>& values) {
    for (const float v : values)
      bits.push_back(std::bit_cast<std::uint32_t>(v));
  };
  for (const std::vector<float>& w : rank.weights)
    add(w);
  for (const ToyEntry& entry : rank.state)
    add(entry.values);
  return bits;
}

void expect_bitwise_equal(const std::vector<ToyRank>& got, const std::vector<ToyRank>& want,
                          const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    EXPECT_EQ(bits_of(got[r]), bits_of(want[r])) << what << ", rank " << r;
    EXPECT_EQ(got[r].seen, want[r].seen) << what << ", rank " << r;
    EXPECT_EQ(got[r].squares, want[r].squares) << what << ", rank " << r;
  }
}

std::vector<double> flat(const std::vector<std::vector<float>>& weights) {
  std::vector<double> all;
  for (const std::vector<float>& w : weights)
    all.insert(all.end(), w.begin(), w.end());
  return all;
}

}  // namespace muo::test
