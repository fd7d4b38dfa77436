// Wrong addresses, and reads of memory that was never written.

#include "emulator/selftest/cases.h"

namespace muo::selftest {
namespace {

MUO_SHARED_MEMORY

__global__ void beyond_dynamic(float* out, const float* x, unsigned offset) {
  float* const dynamic = shared_memory<float>();
  dynamic[threadIdx.x + offset] = x[threadIdx.x];
  __syncthreads();
  float sum = 0.0F;
  for (unsigned i = 0; i < kValues; ++i)
    sum += dynamic[i + offset];
  write_sums(out, sum);
}

__global__ void beyond_static(float* out, const float* x, unsigned offset) {
  __shared__ float values[kValues];
  values[threadIdx.x + offset] = x[threadIdx.x];
  __syncthreads();
  float sum = 0.0F;
  for (unsigned i = 0; i < kValues; ++i)
    sum += values[i + offset];
  write_sums(out, sum);
}

__global__ void beyond_global(float* out, const float* x, unsigned offset) {
  const float next = x[threadIdx.x + offset];
  write_sums(out, block_sum(x[threadIdx.x]) + (next == -1.0F ? 1.0F : 0.0F));
}

__global__ void sixteen_bytes(float* out, const float* x, unsigned offset) {
  const float4 v = threadIdx.x < kValues / 4 - 1
                       ? *reinterpret_cast<const float4*>(x + 4 * threadIdx.x + offset)
                       : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  const float some = v.x + v.y + v.z + v.w;
  write_sums(out, block_sum(x[threadIdx.x]) + (some == -1.0F ? 1.0F : 0.0F));
}

template <bool kPlanted>
__global__ void unwritten_dynamic(float* out, const float* x) {
  float* const dynamic = shared_memory<float>();
  if (!kPlanted || threadIdx.x != 17) dynamic[threadIdx.x] = 0.0F;
  write_sums(out, block_sum(x[threadIdx.x]) + dynamic[17]);
}

template <bool kPlanted>
__global__ void unwritten_static(float* out, const float* x) {
  __shared__ float values[kValues];
  if (!kPlanted || threadIdx.x != 17) values[threadIdx.x] = 0.0F;
  write_sums(out, block_sum(x[threadIdx.x]) + values[17]);
}

template <unsigned kShared, class Kernel>
bool sums_with_offset(Kernel kernel, bool planted) {
  const Array<float> x(kValues);
  const Array<float> out(2);
  float sum = 0.0F;
  for (unsigned i = 0; i < kValues; ++i)
    sum += x[i] = static_cast<float>(1 + i % 7);
  launch(kernel, 1, kValues, kShared, out.data(), x.data(), planted ? 1U : 0U);
  return out[0] == sum && out[1] == 2 * sum;
}

constexpr unsigned kBytes = kValues * sizeof(float);

}  // namespace

std::vector<Case> memory_cases() {
  return {
      {"beyond dynamic shared memory",
       [](bool planted) { return sums_with_offset<kBytes>(beyond_dynamic, planted); }},
      {"beyond static shared memory",
       [](bool planted) { return sums_with_offset<0>(beyond_static, planted); }},
      {"reading beyond global memory",
       [](bool planted) { return sums_with_offset<0>(beyond_global, planted); }},
      {"misaligned access of 16 bytes",
       [](bool planted) { return sums_with_offset<0>(sixteen_bytes, planted); }},
      {"reading unwritten dynamic shared memory",
       [](bool planted) {
         return sums(planted ? unwritten_dynamic<true> : unwritten_dynamic<false>, 1, kValues,
                     kBytes);
       }},
      {"reading unwritten static shared memory",
       [](bool planted) {
         return sums(planted ? unwritten_static<true> : unwritten_static<false>);
       }},
  };
}

}  // namespace muo::selftest
