// Rates of attention and, in the same run, of sgemm, on one thread. FLOPs count visible pairs only:
// 4 h per pair and head for the forward pass and 10 h for the backward pass, for two and five
// matrix products.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/host_kernels.h"
#include "support/attention_reference.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

using Index = std::int64_t;

void sgemm(benchmark::State& state) {
  const Index n = state.range(0);
  const test::HostTensor a = test::random_tensor({n, n}, "a"), b = test::random_tensor({n, n}, "b"),
                         c({n, n});
  test::KernelStream stream;
  for (auto _ : state)
    gemm(stream, {.d = c, .a = a, .b = b, .transpose_b = true});
  state.SetLabel(describe_gemm_library());
  state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(n * n * n),
                                                benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(sgemm)->Arg(768)->Unit(benchmark::kMicrosecond);

Index visible_pairs(const test::AttentionCase& c) {
  if (c.documents.empty()) {
    test::AttentionCase one = c;
    one.documents = {c.t};
    return visible_pairs(one);
  }
  const std::vector<std::int32_t> starts = test::document_starts_of(c);
  Index pairs = 0;
  for (Index i = 0; i < c.b * c.t; ++i)
    pairs += std::min(i % c.t - starts[static_cast<std::size_t>(i)], c.window) + 1;
  return pairs;
}

// Arguments: b, t, heads, kv_heads, h, window and, optionally, the length of documents (0: none).
void run(benchmark::State& state, bool backward, DType dtype, bool documents = false) {
  test::AttentionCase c{.b = state.range(0),
                        .t = state.range(1),
                        .heads = state.range(2),
                        .kv_heads = state.range(3),
                        .h = state.range(4),
                        .window = state.range(5)};
  if (documents && state.range(6) > 0) c.documents = {state.range(6)};
  const test::AttentionProblem p(c, dtype);
  test::KernelStream stream;
  attention(stream, p.forward_args());
  for (auto _ : state) {
    if (backward)
      attention_backward(stream, p.backward_args());
    else
      attention(stream, p.forward_args());
  }
  state.counters["flop/s"] = benchmark::Counter(
      (backward ? 10.0 : 4.0) * static_cast<double>(c.heads * c.h * visible_pairs(c)),
      benchmark::Counter::kIsIterationInvariantRate);
}
void attention_forward(benchmark::State& state) { run(state, false, DType::kF32); }
void attention_backward(benchmark::State& state) { run(state, true, DType::kF32); }
void attention_forward_bf16(benchmark::State& state) { run(state, false, DType::kBF16); }
void attention_backward_bf16(benchmark::State& state) { run(state, true, DType::kBF16); }

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"b", "t", "heads", "kv", "h", "window"})->Unit(benchmark::kMicrosecond);
  bench->Args({4, 256, 6, 6, 64, 256});
  bench->Args({4, 256, 2, 2, 128, 256});
  bench->Args({4, 512, 2, 2, 128, 512});
  for (const Index window : {128, 512})
    bench->Args({4, 512, 6, 6, 64, window});
  bench->Args({1, 2048, 6, 6, 64, 2048});
  for (const Index window : {128, 256, 512, 1024})
    bench->Args({1, 2048, 6, 6, 64, window});
}
BENCHMARK(attention_forward)->Apply(shapes);
BENCHMARK(attention_backward)->Apply(shapes);
BENCHMARK(attention_forward_bf16)->Apply(shapes);
BENCHMARK(attention_backward_bf16)->Apply(shapes);

void documents_forward(benchmark::State& state) { run(state, false, DType::kF32, true); }
void documents_backward(benchmark::State& state) { run(state, true, DType::kF32, true); }
void documents_forward_bf16(benchmark::State& state) { run(state, false, DType::kBF16, true); }
void documents_backward_bf16(benchmark::State& state) { run(state, true, DType::kBF16, true); }

// Rows of several documents and, for comparison, whole rows.
void packed(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"b", "t", "heads", "kv", "h", "window", "document"});
  bench->Unit(benchmark::kMicrosecond);
  for (const Index window : {512, 2048})
    for (const Index document : {0, 100, 500, 2048})
      bench->Args({1, 2048, 6, 6, 64, window, document});
}
BENCHMARK(documents_forward)->Apply(packed);
BENCHMARK(documents_backward)->Apply(packed);
BENCHMARK(documents_forward_bf16)->Apply(packed);
BENCHMARK(documents_backward_bf16)->Apply(packed);

}  // namespace
}  // namespace muo

BENCHMARK_MAIN();
