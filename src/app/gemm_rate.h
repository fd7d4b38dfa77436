#pragma once

#include <cstdint>
#include <string>

#include "runtime/device_group.h"

namespace muo {

// FLOP/s that all devices of a group reach together in matrix products of size x size x size, every
// device with matrices of its own: the best of a few rounds after a first one, in which the slowest
// device counts. On the host by each thread's own processor time, so that a busy machine does not
// lower the rate, and for no more devices than cores. Takes some tens of milliseconds on a CPU.
// dtype: fp32 or bf16.
double measure_gemm_rate(const GroupOptions& options, DType dtype, std::int64_t size = 768);

// Bytes per second, read and written, of all devices of a group that copy `bytes` at once, more
// than caches hold; measured likewise.
double measure_copy_rate(const GroupOptions& options, std::int64_t bytes = std::int64_t{64} << 20);

// 312 GFLOP/s, 989 TFLOP/s
std::string flops_text(double flops_per_second);

}  // namespace muo
