// Launches that a GPU refuses, each with a similar one that it accepts.

#include "emulator/selftest/cases.h"
#include "runtime/cuda/shared_memory.h"

namespace muo::selftest {
namespace {

MUO_SHARED_MEMORY

// The sum of all these kernels, with the shared memory and the threads of their launch.
__device__ void add_up(float* out, const float* x, float* shared) {
  if (threadIdx.x < kValues) shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0.0F;
  for (unsigned i = 0; i < kValues; ++i)
    sum += shared[i];
  write_sums(out, sum);
}

__global__ void shared_in_kernel(float* out, const float* x) {
  float* const dynamic = shared_memory<float>();
  add_up(out, x, dynamic);
}
__global__ void many_registers(float* out, const float* x) {
  float* const dynamic = shared_memory<float>();
  add_up(out, x, dynamic);
}
__global__ void bounded(float* out, const float* x) {
  float* const dynamic = shared_memory<float>();
  add_up(out, x, dynamic);
}
__global__ void in_a_table(float* out, const float* x) {
  float* const dynamic = shared_memory<float>();
  add_up(out, x, dynamic);
}
__global__ void of_no_table(float* out, const float* x) {
  float* const dynamic = shared_memory<float>();
  add_up(out, x, dynamic);
}

template <std::size_t kBytes>
struct Parameters {
  char bytes[kBytes];
};

// A long parameter after two pointers.
template <std::size_t kBytes>
__global__ void long_parameters(float* out, const float* x, Parameters<kBytes> more) {
  float* const dynamic = shared_memory<float>();
  add_up(out, x, dynamic);
  if (more.bytes[kBytes - 1] != 0) out[0] = 0.0F;
}
template <std::size_t kBytes>
bool sums_with_parameters() {
  const Array<float> x(kValues);
  const Array<float> out(2);
  for (float& value : x)
    value = 1.0F;
  launch(long_parameters<kBytes>, 1, kValues, kValues * sizeof(float), out.data(), x.data(),
         Parameters<kBytes>{});
  return out[0] == float{kValues};
}

// Launches with 48 KiB in total, or more; opts in as launch() does, or not at all.
bool launches(std::size_t dynamic_bytes, bool opts_in) {
  const Array<float> x(kValues);
  const Array<float> out(2);
  for (float& value : x)
    value = 1.0F;
  const void* kernel = reinterpret_cast<const void*>(&shared_in_kernel);
  const simt::Call<float*, const float*> call(&shared_in_kernel, out.data(), x.data());
  call.run(call.checked(1, kValues, dynamic_bytes,
                        opts_in ? simt::shared_opt_in(kernel, dynamic_bytes) : 0, false));
  return out[0] == float{kValues};
}

constexpr std::size_t kBytes = kValues * sizeof(float);
constexpr std::size_t kMax = (std::size_t{99} << 10) - kSharedInKernel;  // on sm_86

}  // namespace

std::vector<Case> launch_cases() {
  return {
      {"shared memory without opt-in",
       [](bool planted) {
         constexpr std::size_t kMaxWithout = cuda::kSharedWithoutOptIn - kSharedInKernel;
         return launches(kMaxWithout, false) && launches(kMaxWithout + 4, !planted);
       }},
      {"more shared memory than a block has",
       [](bool planted) { return sums(shared_in_kernel, 1, kValues, kMax + (planted ? 4 : 0)); }},
      {"more registers than a block has",
       [](bool planted) { return sums(many_registers, 1, planted ? 513 : 512, kBytes); }},
      {"more threads than the launch bounds say",
       [](bool planted) { return sums(bounded, 1, kValues + (planted ? 1 : 0), kBytes); }},
      {"more bytes of parameters than a launch takes",
       [](bool planted) {
         return planted ? sums_with_parameters<32764 - 15>() : sums_with_parameters<32764 - 16>();
       }},
      {"a kernel of which nobody knows what it takes",
       [](bool planted) { return sums(planted ? of_no_table : in_a_table, 1, kValues, kBytes); }}};
}

}  // namespace muo::selftest
