#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "base/threads.h"
#include "trainer/run/device_rates.h"

// Peak rates of this machine, measured in this run; other benchmarks report their share of them.
namespace muo::bench {

// Seconds of the fastest of `repeats` rounds. In a round, all threads start together and each
// calls work(thread) once. The CPU time of the slowest one counts, so that other load does
// not lower the peak.
template <class Work>
double best_seconds(int threads, int repeats, const Work& work) {
  std::vector<std::vector<double>> seconds(static_cast<std::size_t>(repeats),
                                           std::vector<double>(static_cast<std::size_t>(threads)));
  std::barrier start(threads);
  std::vector<std::thread> pool;
  pool.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i)
    pool.emplace_back([&, i] {
      for (std::vector<double>& round : seconds) {
        start.arrive_and_wait();
        const double begin = thread_seconds();
        work(i);
        round[static_cast<std::size_t>(i)] = thread_seconds() - begin;
      }
    });
  for (std::thread& thread : pool)
    thread.join();
  double best = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& round : seconds)
    best = std::min(best, *std::max_element(round.begin(), round.end()));
  return best;
}

namespace detail {

#ifdef __x86_64__
// Twelve independent chains hide the latency of a fused multiply-add. Written in assembly, because
// the rest is not compiled for these instructions.
inline void fma_zmm(std::int64_t rounds) {
  for (std::int64_t i = 0; i < rounds; ++i)
    asm volatile(
        "vfmadd231ps %%zmm12, %%zmm13, %%zmm0\n\tvfmadd231ps %%zmm12, %%zmm13, %%zmm1\n\t"
        "vfmadd231ps %%zmm12, %%zmm13, %%zmm2\n\tvfmadd231ps %%zmm12, %%zmm13, %%zmm3\n\t"
        "vfmadd231ps %%zmm12, %%zmm13, %%zmm4\n\tvfmadd231ps %%zmm12, %%zmm13, %%zmm5\n\t"
        "vfmadd231ps %%zmm12, %%zmm13, %%zmm6\n\tvfmadd231ps %%zmm12, %%zmm13, %%zmm7\n\t"
        "vfmadd231ps %%zmm12, %%zmm13, %%zmm8\n\tvfmadd231ps %%zmm12, %%zmm13, %%zmm9\n\t"
        "vfmadd231ps %%zmm12, %%zmm13, %%zmm10\n\tvfmadd231ps %%zmm12, %%zmm13, %%zmm11" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
              "xmm10", "xmm11", "xmm12", "xmm13");
}
inline void fma_ymm(std::int64_t rounds) {
  for (std::int64_t i = 0; i < rounds; ++i)
    asm volatile(
        "vfmadd231ps %%ymm12, %%ymm13, %%ymm0\n\tvfmadd231ps %%ymm12, %%ymm13, %%ymm1\n\t"
        "vfmadd231ps %%ymm12, %%ymm13, %%ymm2\n\tvfmadd231ps %%ymm12, %%ymm13, %%ymm3\n\t"
        "vfmadd231ps %%ymm12, %%ymm13, %%ymm4\n\tvfmadd231ps %%ymm12, %%ymm13, %%ymm5\n\t"
        "vfmadd231ps %%ymm12, %%ymm13, %%ymm6\n\tvfmadd231ps %%ymm12, %%ymm13, %%ymm7\n\t"
        "vfmadd231ps %%ymm12, %%ymm13, %%ymm8\n\tvfmadd231ps %%ymm12, %%ymm13, %%ymm9\n\t"
        "vfmadd231ps %%ymm12, %%ymm13, %%ymm10\n\tvfmadd231ps %%ymm12, %%ymm13, %%ymm11" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
              "xmm10", "xmm11", "xmm12", "xmm13");
}
inline void clear_registers() {
  asm volatile(
      "vxorps %%xmm0, %%xmm0, %%xmm0\n\tvxorps %%xmm1, %%xmm1, %%xmm1\n\t"
      "vxorps %%xmm2, %%xmm2, %%xmm2\n\tvxorps %%xmm3, %%xmm3, %%xmm3\n\t"
      "vxorps %%xmm4, %%xmm4, %%xmm4\n\tvxorps %%xmm5, %%xmm5, %%xmm5\n\t"
      "vxorps %%xmm6, %%xmm6, %%xmm6\n\tvxorps %%xmm7, %%xmm7, %%xmm7\n\t"
      "vxorps %%xmm8, %%xmm8, %%xmm8\n\tvxorps %%xmm9, %%xmm9, %%xmm9\n\t"
      "vxorps %%xmm10, %%xmm10, %%xmm10\n\tvxorps %%xmm11, %%xmm11, %%xmm11\n\t"
      "vxorps %%xmm12, %%xmm12, %%xmm12\n\tvxorps %%xmm13, %%xmm13, %%xmm13" ::
          : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
            "xmm11", "xmm12", "xmm13");
}
// Runs fused multiply-adds on the widest vectors of this CPU; returns their FLOPs.
inline double multiply_add(std::int64_t rounds) {
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  clear_registers();
  wide ? fma_zmm(rounds) : fma_ymm(rounds);
  return 2.0 * 12.0 * (wide ? 16.0 : 8.0) * static_cast<double>(rounds);
}
#else
// The same with NEON, in sixteen chains, because a CPU may start four at a time.
inline double multiply_add(std::int64_t rounds) {
  for (std::int64_t i = 0; i < rounds; ++i)
    asm volatile(
        ".irp r, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23\n\t"
        "fmla v\\r\\().4s, v24.4s, v25.4s\n\t.endr" ::
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20",
              "v21", "v22", "v23");
  return 2.0 * 16.0 * 4.0 * static_cast<double>(rounds);
}
#endif

}  // namespace detail

// The rate of fp32 fused multiply-adds in registers, of all threads together.
inline double fma_peak_gflops(int threads) {
  constexpr std::int64_t kRounds = 2'000'000;  // about 5 ms
  double flops = 0;
  const double seconds = best_seconds(threads, 10, [&](int thread) {
    const double done = detail::multiply_add(kRounds);
    if (thread == 0) flops = done;
  });
  return static_cast<double>(threads) * flops / seconds * 1e-9;
}

// The rate of sgemm of 1024 x 1024 x 1024 on `devices` devices at once, as `doctor` and
// `train` measure it.
inline double sgemm_peak_gflops(int devices) {
  return trainer::measure_gemm_rate({.world = devices}, DType::kF32, 1024) * 1e-9;
}

}  // namespace muo::bench
