#pragma once

#include <cstdint>
#include <string>

#include "runtime/device_group.h"

namespace muo {

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

}  // namespace muo
