#include "support/toy_training.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/philox.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

constexpr std::int64_t kVocab = 61;

// Row g of step s: a walk in which the next token follows from the last one, mostly.
void fill_row(std::int64_t step, std::int64_t g, std::span<std::int32_t> row) {
  const CounterRandom random(7, "toy data");
  const auto base = static_cast<std::uint64_t>((step * kTrainingRows + g) * 64);
  auto token = static_cast<std::int32_t>(random.bits(base) % kVocab);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = token;
    const std::uint64_t bits = random.bits(base + 1 + i);
    token = bits % 8 == 0 ? static_cast<std::int32_t>(bits / 8 % kVocab)
                          : (token * 5 + 3) % static_cast<std::int32_t>(kVocab);
  }
}

struct Inputs {
  explicit Inputs(const RunConfig& config)
      : shape{config.accumulation, config.batch, config.model.seq_len},
        inputs(static_cast<std::size_t>(shape.numel())),
        targets(inputs.size()) {}

  void fill(const RankContext& rank, std::int64_t step) {
    std::vector<std::int32_t> row(static_cast<std::size_t>(shape[2]) + 1);
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b) {
        fill_row(step, (a * rank.world + rank.rank) * shape[1] + b, row);
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

void perturb(RunState& state, std::uint64_t seed) {
  const CounterRandom random(seed, "one ulp");
  std::uint64_t i = 0;
  for (const Tensor& weight : state.weights) {
    float* values = weight.as<float>();
    for (std::int64_t j = 0; j < weight.numel(); ++j)
      values[j] = std::nextafter(values[j], (random.bits(i++) & 1) != 0 ? INFINITY : -INFINITY);
  }
}

void run_rank(RankContext& rank, const ToyTraining& run, const RunConfig& config,
              const std::vector<ParamSpec>& params, const ShardingPlan& plan, ToyCurves& result,
              std::mutex& mutex) {
  PlannedArena arena(rank.device, plan_rank_memory(config, params, plan, rank.rank));
  RunState state(rank, config, params, plan, arena);
  if (run.graph) state.capture();
  rank.device.seal();
  const std::int64_t allocations = rank.device.allocations();
  state.initialize({});
  state.initialize_weights();
  if (run.perturbation != 0) perturb(state, run.perturbation);
  const auto copied = rank.device.make_event();
  Inputs inputs(config);
  for (int step = 0; step < run.steps; ++step) {
    if (run.before_step) run.before_step(rank, state, step);
    inputs.fill(rank, step);
    state.step.run(inputs.view(inputs.inputs), inputs.view(inputs.targets), *copied);
    rank.compute.synchronize();
    if (rank.rank == 0) {
      const MetricsRecord record = state.metrics(step);
      result.losses.push_back(record.loss);
      result.grad_norms.push_back(record.grad_norm);
      result.committed.push_back(record.committed);
    }
  }
  state.verify_sync();
  const std::lock_guard lock(mutex);
  result.allocations_while_running += rank.device.allocations() - allocations;
  if (rank.rank == 0)
    for (const Tensor& weight : state.weights)
      result.weights.insert(result.weights.end(), weight.as<float>(),
                            weight.as<float>() + weight.numel());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return 0.5 * (values[values.size() / 2] + values[(values.size() - 1) / 2]);
}

}  // namespace

RunConfig toy_config(const ToyTraining& run) {
  RunConfig config;
  config.options.strategy = run.strategy;
  config.options.graph = run.graph;
  config.options.seed = 42;
  config.model = {.vocab_size = kVocab,
                  .n_layer = 3,
                  .n_head = 2,
                  .n_kv_head = 1,
                  .n_embd = 20,
                  .seq_len = kTrainingSeqLen,
                  .window_pattern = "L"};
  config.world = run.world;
  config.accumulation = run.accumulation;
  config.batch = kTrainingRows / (run.world * run.accumulation);
  MUO_CHECK(config.rows_per_step() == kTrainingRows, "world ", run.world, ", accumulation ",
            run.accumulation);
  config.total_batch_tokens = kTrainingRows * kTrainingSeqLen;
  config.iterations = 100;
  config.optimizer = {.iterations = 100, .matrix_lr = 0.02, .embedding_lr = 0.1, .warmup_steps = 5};
  return config;
}

ToyCurves train(const ToyTraining& run) {
  const RunConfig config = toy_config(run);
  const std::vector<ParamSpec> params = gpt_parameters(config.model);
  const ShardingPlan plan = make_sharding_plan(params, run.world, run.strategy);
  ToyCurves result;
  std::mutex mutex;
  GroupOptions options;
  options.world = run.world;
  options.random_order_seed = run.random_order;
  DeviceGroup group(options);
  group.run([&](RankContext& rank) { run_rank(rank, run, config, params, plan, result, mutex); });
  return result;
}

double curve_distance(const std::vector<double>& a, const std::vector<double>& b) {
  MUO_CHECK(a.size() == b.size() && !a.empty());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

Agreement agreement(const ToyTraining& run) {
  const ToyCurves reference = train(run);
  const std::vector<double> weights(reference.weights.begin(), reference.weights.end());
  std::vector<double> losses_apart;
  std::vector<double> weights_apart;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    ToyTraining control = run;
    control.perturbation = seed;
    const ToyCurves other = train(control);
    losses_apart.push_back(curve_distance(other.losses, reference.losses));
    weights_apart.push_back(relative_error(other.weights, weights));
  }
  return {.losses = 4 * median(losses_apart), .weights = 4 * median(weights_apart)};
}

}  // namespace muo::test
