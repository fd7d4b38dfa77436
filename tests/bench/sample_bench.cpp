// Tokens per second of sampling on the host: a step with the cache, compared with a pass over the
// whole context for each token, as in sampling without a cache.
//   build/release/sample_bench
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphs/capture.h"
#include "support/tensors.h"
#include "trainer/infer/inference.h"

namespace muo {
namespace {

// nanochat's sizes by depth, with its smallest vocabulary.
model::GptConfig model(std::int64_t depth, DType dtype) {
  model::GptConfig c;
  c.vocab_size = 32768;
  c.n_layer = depth;
  c.n_embd = 64 * depth;
  c.n_head = c.n_kv_head = std::max<std::int64_t>(1, c.n_embd / 128);
  c.seq_len = 1024;
  c.dtype = dtype;
  model::set_nanochat_extras(c);
  return c;
}

// Calls body(decoder) on a rank; every row has a context of `context` tokens.
template <class Body>
void with_decoder(const model::GptConfig& config, std::int64_t rows, std::int64_t context,
                  const Body& body) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  DeviceGroup group({.world = 1});
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device,
                       trainer::plan_inference_memory(config, params, {.sample = rows}, 0, 1));
    trainer::InferenceState state(rank, config, params, {.sample = rows}, arena);
    graphs::warm_up_and_capture(rank, arena, state);
    model::fill_rotary_tables(rank.compute, config, state.rotary);
    for (std::size_t i = 0; i < params.size(); ++i)
      rank.compute.copy(
          state.weights[i],
          test::random_tensor(params[i].shape, params[i].name, 0.02F).rounded(params[i].replica));
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(context), 1);
    std::vector<float> logits(static_cast<std::size_t>(rows * config.vocab_size));
    state.decoder->begin(0, tokens,
                         std::span(logits).first(static_cast<std::size_t>(config.vocab_size)));
    for (std::int64_t row = 1; row < rows; ++row)
      state.decoder->copy_row(0, row);
    body(*state.decoder, tokens, logits);
  });
}

void step(benchmark::State& state, DType dtype) {
  const std::int64_t rows = state.range(1), context = state.range(2);
  with_decoder(model(state.range(0), dtype), rows, context,
               [&](graphs::Decoder& decoder, const auto&, std::vector<float>& logits) {
                 const std::vector<std::int32_t> next(static_cast<std::size_t>(rows), 2);
                 for (auto _ : state)
                   decoder.step(next, logits);
               });
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kIsIterationInvariantRate);
}

void whole_context(benchmark::State& state, DType dtype) {
  const model::GptConfig config = model(state.range(0), dtype);
  with_decoder(config, 1, state.range(2),
               [&](graphs::Decoder& decoder, const auto& tokens, std::vector<float>& logits) {
                 for (auto _ : state)
                   decoder.begin(0, tokens, logits);
               });
  state.counters["tokens/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

// Arguments: depth, rows, tokens of context.
void step_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"depth", "rows", "context"})
      ->Args({6, 1, 200})
      ->Args({6, 1, 900})
      ->Args({6, 8, 900})
      ->Iterations(100)
      ->UseRealTime();
}
void whole_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"depth", "rows", "context"})
      ->Args({6, 1, 200})
      ->Args({6, 1, 900})
      ->Iterations(5)
      ->UseRealTime();
}

BENCHMARK_CAPTURE(step, fp32, DType::kF32)->Apply(step_sizes);
BENCHMARK_CAPTURE(whole_context, fp32, DType::kF32)->Apply(whole_sizes);
BENCHMARK_CAPTURE(step, bf16, DType::kBF16)->Apply(step_sizes);
BENCHMARK_CAPTURE(whole_context, bf16, DType::kBF16)->Apply(whole_sizes);

}  // namespace
}  // namespace muo

BENCHMARK_MAIN();
