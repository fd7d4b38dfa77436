// Rates of the matrix products of training, per library, operation, shape and number of
// concurrent callers, beside the peaks of the machine in the same run.
//   OMP_NUM_THREADS=1 build/release/gemm_bench
#include <benchmark/benchmark.h>
#include <cblas.h>
#ifdef MUO_BENCH_ONEDNN
#  include <dnnl.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_time.h"
#include "bench/peak.h"
#include "kernels/blas.h"
#include "support/tensors.h"

namespace muo {
namespace {

struct Shape3 {
  int m, k, n;  // of the layer: y (m, n) = x (m, k) w^T
};
constexpr std::array<Shape3, 6> kShapes = {{{1024, 384, 1536},
                                            {1024, 1536, 384},
                                            {1024, 384, 384},
                                            {2048, 768, 3072},
                                            {1024, 384, 8192},
                                            {1024, 384, 50304}}};

// NT: y = x w^T. NN: dx = dy w. TN: dw = dy^T x.
struct Product {
  const char* name;
  bool transpose_a, transpose_b;
  [[nodiscard]] Shape3 sizes(Shape3 s) const {  // d is (m, n), k is summed over
    if (transpose_b) return s;
    return transpose_a ? Shape3{s.n, s.m, s.k} : Shape3{s.m, s.n, s.k};
  }
};
constexpr std::array<Product, 3> kProducts = {
    {{"NT", false, true}, {"NN", false, false}, {"TN", true, false}}};

using Sgemm = void (*)(const Product&, Shape3, const float* a, const float* b, float* d);

void openblas(const Product& p, Shape3 s, const float* a, const float* b, float* d) {
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
              p.transpose_b ? CblasTrans : CblasNoTrans, s.m, s.n, s.k, 1.0F, a,
              p.transpose_a ? s.m : s.k, b, p.transpose_b ? s.k : s.n, 0.0F, d, s.n);
}

#ifdef MUO_BENCH_ONEDNN
void onednn(const Product& p, Shape3 s, const float* a, const float* b, float* d) {
  dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0F, a,
             p.transpose_a ? s.m : s.k, b, p.transpose_b ? s.k : s.n, 0.0F, d, s.n);
}
#endif

// Normal values, the first 4096 again and again: the big matrices would take seconds to draw.
test::HostTensor matrix(int rows, int columns, std::string_view name) {
  const test::HostTensor pattern = test::random_tensor({4096}, name);
  test::HostTensor out({rows, columns});
  std::size_t i = 0;
  for (float& value : out.values())
    value = pattern.values()[i++ % 4096];
  return out;
}

void run(benchmark::State& state, Sgemm sgemm, const Product& product, Shape3 layer) {
  const Shape3 s = product.sizes(layer);
  const test::HostTensor a = matrix(s.m, s.k, "a");
  const test::HostTensor b = matrix(s.k, s.n, "b");
  const test::HostTensor d({s.m, s.n});
  const double begin = thread_seconds();
  for (auto _ : state)
    sgemm(product, s, a.values().data(), b.values().data(), d.values().data());
  const double flops = 2.0 * s.m * s.n * s.k * static_cast<double>(state.iterations());
  state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  // Per second of the callers' own time, summed over them: what an idle machine would give.
  state.counters["flop/cpu-s"] = flops / (thread_seconds() - begin);
}

void add(const std::string& library, Sgemm sgemm) {
  for (const int callers : {1, 2})
    for (const Shape3 shape : kShapes)
      for (const Product& product : kProducts)
        benchmark::RegisterBenchmark(
            concat(library, "/", product.name, "/", shape.m, "x", shape.k, "x", shape.n,
                   "/callers:", callers)
                .c_str(),
            [=](benchmark::State& state) { run(state, sgemm, product, shape); })
            ->Threads(callers)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace muo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  muo::require_safe_blas();
  for (const int threads : {1, 2}) {
    benchmark::AddCustomContext(muo::concat("fma_peak_gflops_", threads, "_threads"),
                                std::to_string(muo::bench::fma_peak_gflops(threads)));
    benchmark::AddCustomContext(muo::concat("sgemm_peak_gflops_", threads, "_threads"),
                                std::to_string(muo::bench::sgemm_peak_gflops(threads)));
  }
  benchmark::AddCustomContext("openblas_core", openblas_get_corename());
  benchmark::AddCustomContext("openblas_config", openblas_get_config());
  muo::add("openblas", &muo::openblas);
#ifdef MUO_BENCH_ONEDNN
  muo::add("onednn", &muo::onednn);
#endif
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
