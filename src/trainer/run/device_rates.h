#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device_group.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {

// Number of a group's devices that run at the same time: on the host, at most the number of cores.
int devices_at_once(const GroupOptions& options);

inline constexpr std::int64_t kRateSize = 768;

// FLOP/s that all devices of a group reach together in matrix products of size x size x size, each
// with its own matrices, none transposed: the best of several rounds after a warm-up round, each
// limited by its slowest device. On the host the CPU time of each thread is measured, so that other
// load does not lower the result, and no more devices than cores are used. Takes some tens of
// milliseconds on a CPU, or `at_least` seconds if that is longer, because a CPU's clock may rise
// slowly. dtype: fp32 or bf16.
double measure_gemm_rate(const GroupOptions& options, DType dtype, std::int64_t size = kRateSize,
                         double at_least = 0);

// Bytes per second, read plus written, of all devices of a group while each copies 64 MiB (more
// than caches hold); measured in the same way.
double measure_copy_rate(const GroupOptions& options, double at_least = 0);

// 312 GFLOP/s, 989 TFLOP/s
std::string flops_text(double flops_per_second);

// Peak FLOP/s of all devices of a run together, for its utilization. For GPUs these are the maker's
// bf16 figures; for a host, the rate of matrix products in the run's dtype, measured now for at
// least `seconds`.
struct DevicePeak {
  double flops = 0;  // 0: unknown
  std::string text;  // the figure and its source, or why it is unknown
};
DevicePeak peak_of(const RunConfig& config, double seconds = 0);

// Estimated time of the remaining steps at 40 % of the peak; measured runs reach 25 to 60 %.
struct ExpectedTime {
  double seconds = 0;  // 0: the peak is unknown
  std::string text;    // "about 1h39m, at 40 % of the peak"
};
ExpectedTime expected_time(const RunConfig& config, const DevicePeak& peak);

// The words of a name: runs of letters and digits, in lower case.
std::vector<std::string> gpu_name_words(std::string_view text);

// Dense bf16 FLOP/s of a whole GPU with fp32 sums, as stated by the maker, for the name that CUDA
// and nvidia-smi show ("NVIDIA H100 80GB HBM3"). Empty for a GPU that is not in the table, and for
// variants and slices of a GPU in the table (Ti, D, laptop, MIG).
std::optional<double> gpu_peak_flops(std::string_view device_name);

}  // namespace muo::trainer
