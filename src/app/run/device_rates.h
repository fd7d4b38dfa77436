#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/run/run_config.h"
#include "runtime/device_group.h"

namespace muo::app {

// How many devices of a group run at once: of a host's no more than it has cores.
int devices_at_once(const GroupOptions& options);

inline constexpr std::int64_t kRateSize = 768;

// FLOP/s that all devices of a group reach together in matrix products of size x size x size, every
// device with matrices of its own, none transposed: the best of a few rounds after a first one, in
// which the slowest device counts. On the host by each thread's own processor time, so that a busy
// machine does not lower the rate, and for no more devices than cores. Takes some tens of
// milliseconds on a CPU, or `at_least` so many seconds: a CPU's clock may take its time to rise.
// dtype: fp32 or bf16.
double measure_gemm_rate(const GroupOptions& options, DType dtype, std::int64_t size = kRateSize,
                         double at_least = 0);

// Bytes per second, read and written, of all devices of a group that copy 64 MiB at once, more
// than caches hold; measured likewise.
double measure_copy_rate(const GroupOptions& options, double at_least = 0);

// 312 GFLOP/s, 989 TFLOP/s
std::string flops_text(double flops_per_second);

// What the utilisation of a run is a share of: FLOP/s of all its devices together. Of GPUs what
// their maker states, in bf16; of a host, which no table has, what it reaches in matrix products of
// the run's dtype, measured now for at least `seconds`.
struct DevicePeak {
  double flops = 0;  // 0: unknown
  std::string text;  // the figure and where it comes from, or why there is none
};
DevicePeak peak_of(const RunConfig& config, double seconds = 0);

// How long the steps that are left take at 40 % of the peak; measured runs reach 25 to 60 %.
struct ExpectedTime {
  double seconds = 0;  // 0: the peak is unknown
  std::string text;    // about 1h39m, at 40 % of the peak
};
ExpectedTime expected_time(const RunConfig& config, const DevicePeak& peak);

// In lower case, cut at everything that is neither letter nor digit.
std::vector<std::string> gpu_name_words(std::string_view text);

// Dense bf16 FLOP/s of a whole GPU with fp32 sums, as its maker states them, by the name that CUDA
// and nvidia-smi show ("NVIDIA H100 80GB HBM3"). Empty for a GPU that is not in the table, and for
// relatives and slices of those that are (Ti, D, laptop, MIG).
std::optional<double> gpu_peak_flops(std::string_view device_name);

}  // namespace muo::app
