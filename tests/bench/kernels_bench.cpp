// Bytes per second of the element-wise host kernels at the sizes of a step: 1024 rows, width 384, 6
// heads of 64, vocabulary 50257. Bytes are those of the arguments, each read or written once.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <initializer_list>

#include "base/threads.h"
#include "kernels/activation.h"
#include "kernels/cross_entropy.h"
#include "kernels/draw.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "kernels/rotary.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;

constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kWidth = 384;
constexpr std::int64_t kHeads = 6;
constexpr std::int64_t kHead = 64;
constexpr std::int64_t kVocab = 50257;
constexpr std::int64_t kPaddedVocab = 50304;

template <class Step>
void measure(benchmark::State& state, std::initializer_list<Tensor> traffic, const Step& step) {
  test::KernelStream stream;
  double bytes = 0;
  for (const Tensor& tensor : traffic)
    bytes += static_cast<double>(tensor.bytes());
  const double begin = thread_seconds();
  for (auto _ : state)
    step(stream);
  state.counters["bytes/cpu-s"] =
      bytes * static_cast<double>(state.iterations()) / (thread_seconds() - begin);
}

template <DType kType>
void rms_norm_forward(benchmark::State& state) {
  const HostTensor x = random_tensor({kRows, kWidth}, "x").rounded(kType);
  const HostTensor y({kRows, kWidth}, kType);
  const HostTensor rstd({kRows});
  measure(state, {x, y, rstd},
          [&](Stream& stream) { rms_norm(stream, {.y = y, .rstd = rstd, .x = x}); });
}
BENCHMARK(rms_norm_forward<DType::kF32>);
BENCHMARK(rms_norm_forward<DType::kBF16>);

template <DType kType>
void rms_norm_backward_accumulate(benchmark::State& state) {
  const HostTensor y = random_tensor({kRows, kWidth}, "y").rounded(kType);
  const HostTensor dy = random_tensor({kRows, kWidth}, "dy").rounded(kType);
  const HostTensor dx({kRows, kWidth}, kType);
  const HostTensor rstd({kRows});
  measure(state, {dx, dx, dy, y, rstd}, [&](Stream& stream) {
    rms_norm_backward(stream, {.dx = dx, .dy = dy, .y = y, .rstd = rstd, .accumulate = true});
  });
}
BENCHMARK(rms_norm_backward_accumulate<DType::kF32>);
BENCHMARK(rms_norm_backward_accumulate<DType::kBF16>);

template <DType kType>
void relu_squared_forward(benchmark::State& state) {
  const HostTensor x = random_tensor({kRows, 4 * kWidth}, "x").rounded(kType);
  const HostTensor y({kRows, 4 * kWidth}, kType);
  measure(state, {x, y}, [&](Stream& stream) { relu_squared(stream, {.y = y, .x = x}); });
}
BENCHMARK(relu_squared_forward<DType::kF32>);
BENCHMARK(relu_squared_forward<DType::kBF16>);

template <DType kType>
void relu_squared_backward_in_place(benchmark::State& state) {
  const HostTensor squares = random_tensor({kRows, 4 * kWidth}, "y");
  for (float& value : squares.values())
    value *= value;
  const HostTensor y = squares.rounded(kType);
  const HostTensor dx({kRows, 4 * kWidth}, kType);
  measure(state, {y, dx, dx},
          [&](Stream& stream) { relu_squared_backward(stream, {.dx = dx, .dy = dx, .y = y}); });
}
BENCHMARK(relu_squared_backward_in_place<DType::kF32>);
BENCHMARK(relu_squared_backward_in_place<DType::kBF16>);

template <DType kType>
void rotary_norm_both_ways(benchmark::State& state) {
  constexpr std::int64_t kT = 256;
  const Shape shape{kRows / kT, kT, kHeads, kHead};
  const HostTensor x = random_tensor(shape, "x").rounded(kType);
  const HostTensor dx = random_tensor(shape, "dx").rounded(kType);
  const HostTensor rstd({shape[0], shape[1], shape[2]});
  const HostTensor cos({kT, kHead / 2}, kType);
  const HostTensor sin({kT, kHead / 2}, kType);
  test::KernelStream tables;
  rotary_table(tables, {.cos = cos, .sin = sin});
  measure(state, {x, x, x, dx, dx, rstd, rstd}, [&](Stream& stream) {
    rotary_norm(stream, {.x = x, .rstd = rstd, .cos = cos, .sin = sin});
    rotary_norm_backward(stream, {.dx = dx, .y = x, .rstd = rstd, .cos = cos, .sin = sin});
  });
}
BENCHMARK(rotary_norm_both_ways<DType::kF32>);
BENCHMARK(rotary_norm_both_ways<DType::kBF16>);

void embedding_both_ways(benchmark::State& state) {
  const HostTensor table = random_tensor({kPaddedVocab, kWidth}, "table");
  const HostTensor y({kRows, kWidth});
  const HostTensor tokens = test::random_tokens(kRows, static_cast<std::int32_t>(kVocab), "tokens");
  const HostTensor groups({token_groups_size(kRows, kPaddedVocab)}, DType::kI32);
  measure(state, {y, y, y, y, y}, [&](Stream& stream) {
    embedding(stream, {.y = y, .table = table, .tokens = tokens});
    group_tokens(stream, {.groups = groups, .tokens = tokens, .vocab = kPaddedVocab});
    embedding_backward(
        stream, {.dtable = table, .dy = y, .tokens = tokens, .groups = groups, .accumulate = true});
  });
}
BENCHMARK(embedding_both_ways);

void sum_of_squares(benchmark::State& state) {
  const HostTensor x = random_tensor({kRows, 4 * kWidth}, "x");
  const HostTensor out({}, DType::kF64);
  measure(state, {x}, [&](Stream& stream) { sum_squares(stream, {.out = out, .x = x}); });
}
BENCHMARK(sum_of_squares);

template <InitialValues::Kind kKind>
void draw_initial_values(benchmark::State& state) {
  const HostTensor y({kRows, 4 * kWidth});
  measure(state, {y}, [&](Stream& stream) {
    draw(stream, {.y = y, .random = {1, "y"}, .init = {kKind, 0.5}});
  });
}
BENCHMARK(draw_initial_values<InitialValues::Kind::kUniform>);
BENCHMARK(draw_initial_values<InitialValues::Kind::kNormal>);

// Argument: the soft-cap. The logits of one round are the gradient of the previous one, because the
// arithmetic does not depend on the values.
template <DType kType>
void cross_entropy_with_gradient(benchmark::State& state) {
  constexpr std::int64_t kChunk = 128;
  const HostTensor logits = random_tensor({kChunk, kPaddedVocab}, "logits").rounded(kType);
  const HostTensor losses({kChunk});
  const HostTensor targets =
      test::random_tokens(kChunk, static_cast<std::int32_t>(kVocab), "targets");
  const HostTensor scale({1}, std::vector{1.0F});
  measure(state, {logits, logits}, [&](Stream& stream) {
    cross_entropy(stream, {.losses = losses,
                           .logits = logits,
                           .targets = targets,
                           .vocab = kVocab,
                           .softcap = static_cast<float>(state.range(0)),
                           .gradient_scale = scale});
  });
}
BENCHMARK(cross_entropy_with_gradient<DType::kF32>)->Arg(0)->Arg(15)->Unit(benchmark::kMillisecond);
BENCHMARK(cross_entropy_with_gradient<DType::kBF16>)
    ->Arg(0)
    ->Arg(15)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muo

BENCHMARK_MAIN();
