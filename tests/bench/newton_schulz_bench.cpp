// Cost of the forms of Newton-Schulz, in CPU time of one caller: five steps for the matrices of the
// MLP of a layer, one (4 n, n) and one (n, 4 n), and for a square matrix. In merged forms, the tall
// matrix is transposed before and after.
//   build/release/newton_schulz_bench --benchmark_repetitions=5
//     --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/threads.h"
#include "bench/peak.h"
#include "kernels/transpose.h"
#include "optim/newton_schulz.h"
#include "support/heap_arena.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

struct Width {
  const char* name;
  std::int64_t n;
};
constexpr Width kWidths[] = {{"P", 384}, {"d12", 768}, {"d24", 1536}};

// Runs the iteration on copies of one input, because repeated application would overflow.
class Batch {
 public:
  Batch(const Shape& shape, DType dtype, const optim::NewtonSchulzForm& form)
      : x_(test::random_tensor(shape, "x", 1.0F / static_cast<float>(shape[1] + shape[2]))
               .rounded(dtype)),
        iteration_("bench", shape, dtype, {}, optim::kPolarExpress, form, arena_) {}

  void run(Stream& stream) const {
    stream.copy(iteration_.input(), x_);
    iteration_.run(stream);
  }
  [[nodiscard]] const optim::NewtonSchulz& iteration() const { return iteration_; }

 private:
  test::HeapArena arena_;
  test::HostTensor x_;
  optim::NewtonSchulz iteration_;
};

template <class Body>
void measure(benchmark::State& state, double plain_flops, const Body& body) {
  test::KernelStream stream;
  body(stream);
  const double begin = thread_seconds();
  for (auto _ : state)
    body(stream);
  const double seconds = (thread_seconds() - begin) / static_cast<double>(state.iterations());
  state.counters["cpu_ms"] = seconds * 1e3;
  state.counters["plain_flop/cpu-s"] = plain_flops / seconds;
}

void mlp(benchmark::State& state, std::int64_t n, DType dtype,
         const optim::NewtonSchulzForm& form) {
  const Shape wide{1, n, 4 * n};
  const Shape tall{1, 4 * n, n};
  const double flops = 2 * optim::newton_schulz_flops({n, 4 * n});
  if (form.merged) {
    const Batch both({2, n, 4 * n}, dtype, form);
    const test::HostTensor outside(tall, dtype);
    return measure(state, flops, [&](Stream& stream) {
      transpose(stream, {.y = both.iteration().input().rows(1, 2), .x = outside});
      both.run(stream);
      transpose(stream, {.y = outside, .x = both.iteration().result().rows(1, 2)});
    });
  }
  const Batch first(wide, dtype, form);
  const Batch second(tall, dtype, form);
  measure(state, flops, [&](Stream& stream) {
    first.run(stream);
    second.run(stream);
  });
}

void square(benchmark::State& state, std::int64_t n, DType dtype,
            const optim::NewtonSchulzForm& form) {
  const Batch batch({1, n, n}, dtype, form);
  measure(state, optim::newton_schulz_flops({n, n}), [&](Stream& stream) { batch.run(stream); });
}

}  // namespace
}  // namespace muo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("sgemm_peak_gflops",
                              std::to_string(muo::bench::sgemm_peak_gflops(1)));
  for (const muo::DType dtype : {muo::DType::kF32, muo::DType::kBF16})
    for (const muo::Width& width : muo::kWidths)
      for (const muo::optim::NewtonSchulzForm& form : muo::optim::newton_schulz_forms())
        for (const auto& [name, run] :
             {std::pair("mlp", &muo::mlp), std::pair("square", &muo::square)})
          benchmark::RegisterBenchmark(
              muo::concat(width.name, "/", name, "/", muo::name_of(dtype), "/", form.name).c_str(),
              [&width, &form, dtype, run = run](benchmark::State& state) {
                run(state, width.n, dtype, form);
              })
              ->UseRealTime()
              ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
