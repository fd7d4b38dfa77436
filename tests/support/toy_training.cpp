#include "support/toy_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/philox.h"
#include "support/sanitized.h"
#include "support/sum_order.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

constexpr std::int64_t kVocab = 61;

// Row g of step s: a random walk in which the next token mostly follows from the previous one.
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

void perturb(graphs::RunState& state, std::uint64_t seed, int step) {
  const CounterRandom random(seed, "one ulp");
  std::uint64_t i = static_cast<std::uint64_t>(step) << 32;
  for (const Tensor& weight : state.weights) {
    float* values = weight.as<float>();
    for (std::int64_t j = 0; j < weight.numel(); ++j)
      values[j] = std::nextafter(values[j], (random.bits(i++) & 1) != 0 ? INFINITY : -INFINITY);
  }
}

}  // namespace

trainer::RunConfig toy_config(const ToyTraining& run) {
  trainer::RunConfig config;
  config.options.sharding = {.strategy = run.strategy,
                             .gather = value_of<optim::Gather>(run.gather).value(),
                             .replicas = value_of<optim::ReplicaAt>(run.replicas),
                             .shard = value_of<optim::Shard>(run.shard)};
  config.options.capture.graph = run.graph;
  config.model = {.vocab_size = kVocab,
                  .n_layer = 3,
                  .n_head = 2,
                  .n_kv_head = 1,
                  .n_embd = 20,
                  .seq_len = kTrainingSeqLen,
                  .window_pattern = "L"};
  config.model.document_token = run.document_token;
  if (run.gates) {
    config.model.value_embeddings = true;
    config.model.n_embd = 24;
  }
  if (run.nanochat_bf16) {
    constexpr auto kBF16 = DType::kBF16;
    model::set_nanochat_extras(config.model);
    config.model.n_embd = 24;
    config.model.dtype = kBF16;
    config.options.numbers = {
        .dtype = kBF16, .gradient_wire = kBF16, .weight_wire = kBF16, .embedding_state = kBF16};
  }
  if (run.lean) {
    trainer::NumberOptions& numbers = config.options.numbers;
    numbers.momentum_state = numbers.adam_state = DType::kBF16;
    numbers.embedding_state = DType::kF32;
    numbers.gradient_wire = DType::kF32;
    numbers.master_weights = trainer::MasterWeights::kSplit;
  }
  if (run.bf16_gradients)
    config.options.numbers.gradients = *(config.options.numbers.gradient_wire = DType::kBF16);
  config.group = run.devices;
  config.group.world = run.world;
  config.step = {.batch = run.rows / (run.world * run.accumulation),
                 .accumulation = run.accumulation,
                 .recompute = run.recompute,
                 .timed = run.timed,
                 .micro_steps = run.micro_steps};
  for (const std::int64_t count : run.ramp)
    config.step.smaller_steps.push_back(count * config.step.batch);
  MUO_CHECK(config.rows_per_step() == run.rows, "world ", run.world, ", accumulation ",
            run.accumulation);
  config.hyper = optim::make_hyper_parameters(
      {.matrix_lr = 0.02, .embedding_lr = 0.1, .warmup_steps = 5}, {.outlier_deviations = 0}, 100);
  return config;
}

ToyCurves train(const ToyTraining& run) {
  return run_whole({.config = toy_config(run),
                    .steps = run.steps,
                    .random_order = run.random_order,
                    .nan_between_steps = run.nan_between_steps,
                    .interrupted = run.interrupted,
                    .fill_row = fill_row,
                    .micro_steps =
                        [&](int step) {
                          return run.ramp.empty() ? run.accumulation
                                                  : run.ramp[static_cast<std::size_t>(step)];
                        },
                    .before_step =
                        [&](RankContext& rank, graphs::RunState& state, int step) {
                          if (run.perturbation != 0) perturb(state, run.perturbation, step);
                          if (run.before_step) run.before_step(rank, state, step);
                        }});
}

void expect_bitwise(const ToyCurves& got, const ToyCurves& want, const std::string& what) {
  EXPECT_EQ(got.losses, want.losses) << what;
  EXPECT_EQ(got.grad_norms, want.grad_norms) << what;
  EXPECT_EQ(got.weights, want.weights) << what;
  // Ranks that hold different parts of a weight sum its squares in different orders.
  EXPECT_LE(relative_error(got.updates, want.updates), 1e-13) << what;
}

void expect_bitwise_in_every_form(ToyTraining run, const ToyCurves& want, const std::string& what) {
  run.graph = true;
  expect_bitwise(train(run), want, what);
  run.graph = false;
  expect_bitwise(train(run), want, what + ", eager");
  run.graph = true;
  for (const std::uint64_t seed : {1U, 2U}) {
    if (kSanitized && seed > 1) break;
    run.random_order = seed;
    expect_bitwise(train(run), want, what + ", order " + std::to_string(seed));
  }
}

Agreement agreement(const ToyTraining& run, SumsAre sums) {
  const ToyCurves reference = train(run);
  const std::vector<double> weights(reference.weights.begin(), reference.weights.end());
  std::vector<double> losses_apart;
  std::vector<double> weights_apart;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    ToyTraining control = run;
    control.perturbation = seed;
    std::optional<Products> products;
    if (sums == SumsAre::kInAnyOrder)
      products.emplace(SumOrder{.parts = static_cast<std::int64_t>(2 << (seed - 1) / 2),
                                .interleaved = seed % 2 == 0});
    const ToyCurves other = train(control);
    losses_apart.push_back(curve_distance(other.losses, reference.losses));
    weights_apart.push_back(relative_error(other.weights, weights));
  }
  return {.losses = 4 * median(losses_apart), .weights = 4 * median(weights_apart)};
}

const ToyCurves& toy_reference(int steps) {
  static std::map<int, ToyCurves> made;
  const auto [place, is_new] = made.try_emplace(steps);
  if (is_new) place->second = train({.steps = steps});
  return place->second;
}

const Agreement& toy_bounds(int steps, SumsAre sums) {
  static std::map<std::pair<int, SumsAre>, Agreement> made;
  const auto [place, is_new] = made.try_emplace({steps, sums});
  if (is_new) place->second = agreement({.steps = steps}, sums);
  return place->second;
}

Agreement toy_device_bounds(int steps) {
  Agreement bounds = toy_bounds(steps, SumsAre::kInAnyOrder);
  constexpr double kFunctionUlp = 4;
  const double first_loss = toy_reference(steps).losses.front();  // the largest
  bounds.losses += kFunctionUlp * std::ldexp(first_loss, -23);    // at least an ulp
  return bounds;
}

namespace {

void expect_within(const Agreement& bounds, const ToyCurves& got, const std::string& what) {
  const ToyCurves& want = toy_reference(static_cast<int>(got.losses.size()));
  EXPECT_LE(curve_distance(got.losses, want.losses), bounds.losses) << what;
  EXPECT_LE(relative_error(got.weights, {want.weights.begin(), want.weights.end()}), bounds.weights)
      << what;
  // By the triangle inequality, norms of weights differ by at most the distance of the weights, and
  // norms of changes by at most the distances of the weights before and after. In earlier steps,
  // weights were no further apart.
  const double bound = bounds.weights * frobenius<float>(want.weights);
  EXPECT_LE(distance<double>(got.updates, want.updates),
            bound * std::sqrt(5.0 * static_cast<double>(got.losses.size())))
      << what;
}

}  // namespace

void expect_toy_agreement(const ToyCurves& got, const std::string& what) {
  expect_within(toy_bounds(static_cast<int>(got.losses.size())), got, what);
}

void expect_toy_device_agreement(const ToyCurves& got, const std::string& what) {
  expect_within(toy_device_bounds(static_cast<int>(got.losses.size())), got, what);
}

}  // namespace muo::test
