// Rates of the matrix products of training, per library, operation, shape and number of concurrent
// callers, and the peaks of the machine in the same run.
//   build/release/gemm_bench
#include <benchmark/benchmark.h>
#ifdef MUO_BENCH_OPENBLAS
#  include <cblas.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/threads.h"
#include "bench/peak.h"
#include "kernels/gemm.h"
#include "kernels/host_kernels.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

struct Shape3 {
  int m, k, n;  // sizes of the layer y (m, n) = x (m, k) w^T
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

using Multiply = void (*)(const Product&, Shape3, const test::HostTensor& a,
                          const test::HostTensor& b, const test::HostTensor& d);

#ifdef MUO_BENCH_OPENBLAS
void openblas(const Product& p, Shape3 s, const test::HostTensor& a, const test::HostTensor& b,
              const test::HostTensor& d) {
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
              p.transpose_b ? CblasTrans : CblasNoTrans, s.m, s.n, s.k, 1.0F, a.values().data(),
              p.transpose_a ? s.m : s.k, b.values().data(), p.transpose_b ? s.k : s.n, 0.0F,
              d.values().data(), s.n);
}
#endif

void own(const Product& p, Shape3 /*s*/, const test::HostTensor& a, const test::HostTensor& b,
         const test::HostTensor& d) {
  test::KernelStream stream;
  gemm(stream,
       {.d = d, .a = a, .b = b, .transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
}

// Normally distributed values that repeat after 4096, because drawing large matrices
// would take seconds.
test::HostTensor matrix(Shape shape, std::string_view name, DType dtype) {
  const test::HostTensor pattern = test::random_tensor({4096}, name);
  const test::HostTensor out(shape);
  std::size_t i = 0;
  for (float& value : out.values())
    value = pattern.values()[i++ % 4096];
  return out.rounded(dtype);
}

// In bf16, weight gradients (TN) are fp32.
void run(benchmark::State& state, Multiply multiply, const Product& product, Shape3 layer,
         DType dtype) {
  const Shape3 s = product.sizes(layer);
  const test::HostTensor a =
      matrix(product.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, "a", dtype);
  const test::HostTensor b =
      matrix(product.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, "b", dtype);
  const test::HostTensor d({s.m, s.n}, product.transpose_a ? DType::kF32 : dtype);
  const double begin = thread_seconds();
  for (auto _ : state)
    multiply(product, s, a, b, d);
  const double flops = 2.0 * s.m * s.n * s.k * static_cast<double>(state.iterations());
  state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  // Per second of the callers' CPU time, summed over them: the rate of an idle machine.
  state.counters["flop/cpu-s"] = flops / (thread_seconds() - begin);
}

void add(const std::string& library, Multiply multiply, DType dtype = DType::kF32) {
  for (const int callers : {1, 2})
    for (const Shape3 shape : kShapes)
      for (const Product& product : kProducts)
        benchmark::RegisterBenchmark(
            concat(library, "/", product.name, "/", shape.m, "x", shape.k, "x", shape.n,
                   "/callers:", callers)
                .c_str(),
            [=](benchmark::State& state) { run(state, multiply, product, shape, dtype); })
            ->Threads(callers)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace muo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const int threads : {1, 2}) {
    benchmark::AddCustomContext(muo::concat("fma_peak_gflops_", threads, "_threads"),
                                std::to_string(muo::bench::fma_peak_gflops(threads)));
    benchmark::AddCustomContext(muo::concat("sgemm_peak_gflops_", threads, "_threads"),
                                std::to_string(muo::bench::sgemm_peak_gflops(threads)));
  }
  benchmark::AddCustomContext("gemm_library", muo::describe_gemm_library());
  muo::add("fp32", &muo::own);
  muo::add("bf16", &muo::own, muo::DType::kBF16);
#ifdef MUO_BENCH_OPENBLAS
  openblas_set_num_threads(1);
  benchmark::AddCustomContext("openblas",
                              muo::concat(openblas_get_config(), openblas_get_corename()));
  muo::add("openblas", &muo::openblas);
#endif
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
